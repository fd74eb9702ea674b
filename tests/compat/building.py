"""Drivers in other languages: built once into .cache/compat, from what each toolchain keeps in its own cache."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = [
    "CACHE",
    "SOURCES",
    "Missing",
    "go_command",
    "java_command",
    "java_program",
    "js_command",
    "kafka_jars",
    "run",
    "rust_command",
    "tool",
]

SOURCES: Final = Path(__file__).parent / "drivers"
CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "compat"
_BUILD_S: Final = 1500.0

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>duramen</groupId><artifactId>compat</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>\n"
)


class Missing(Exception):
    """There is no toolchain for a client here; the text says which."""


def tool(name: str) -> str:
    """The path of a program. Raises Missing."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"there is no {name} here")
    return found


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a step of a build. Raises AssertionError with the end of what it said."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-3000:]}"


def _built(name: str, *sources: Path, salt: str = "") -> tuple[Path, bool]:
    """The directory of a build, and whether it is there already; what else lies there is of older sources.

    The caller makes it, and touches `done` in it.
    """
    digest = hashlib.sha256(salt.encode())
    for source in sources:
        digest.update(source.read_bytes())
    directory = CACHE / f"{name}-{digest.hexdigest()[:12]}"
    if (directory / "done").exists():
        return directory, True
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory, False


def _jars(name: str, artifacts: Sequence[str]) -> Path:
    """A directory with the jars of `group:artifact:version`s and of what they need, from Maven. Raises Missing."""
    directory, there = _built(name, salt=" ".join(artifacts))
    if not there:
        maven = tool("mvn")
        dependencies = "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
        (directory / "pom.xml").write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
        run([maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], directory)
        (directory / "done").touch()
    return directory / "lib"


def kafka_jars(version: str) -> Path:
    """The jars of Apache Kafka's tools, Streams, Connect and MirrorMaker. Raises Missing."""
    # The tool for configs lies in the broker's own.
    parts = ("kafka_2.13", "kafka-tools", "kafka-streams", "connect-runtime", "connect-mirror", "connect-file")
    return _jars("kafka-tools", [*(f"org.apache.kafka:{one}:{version}" for one in parts), "org.slf4j:slf4j-nop:1.7.36"])


def java_program(name: str, lib: Path) -> Path:
    """The classes of a program in Java, compiled against jars. Raises Missing."""
    javac, source = tool("javac"), SOURCES / "java" / f"{name}.java"
    directory, there = _built(f"java-{name.lower()}", source, salt=lib.parent.name)
    if not there:
        run([javac, "-cp", f"{lib}/*", "-d", str(directory / "classes"), str(source)], directory)
        (directory / "done").touch()
    return directory / "classes"


def java_command(version: str) -> Sequence[str]:
    """The Java driver with a version of kafka-clients. Raises Missing."""
    java = tool("java")
    lib = _jars(
        "java-clients",
        [
            f"org.apache.kafka:kafka-clients:{version}", "com.fasterxml.jackson.core:jackson-databind:2.19.0",
            "org.slf4j:slf4j-nop:1.7.36",
        ],
    )  # fmt: skip
    classes = java_program("Driver", lib)
    return [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dkafka.version={version}", "-cp",
            f"{classes}:{lib}/*",
            "Driver"]  # fmt: skip


def go_command(program: str) -> Sequence[str]:
    """A driver in Go. Raises Missing."""
    go, home = tool("go"), SOURCES / "go"
    sources = [home / "go.mod", home / "go.sum", home / "wire" / "wire.go", home / program / "main.go"]
    directory, there = _built(f"go-{program}", *sources)
    if not there:
        run([go, "build", "-o", str(directory / program), f"./{program}"], home)
        (directory / "done").touch()
    return [str(directory / program)]


def js_command(program: str) -> Sequence[str]:
    """A driver in JavaScript; Confluent's brings the source of librdkafka, which is compiled here. Raises Missing."""
    node, npm, home = tool("node"), tool("npm"), SOURCES / "js"
    sources = [home / program / "package.json", home / program / "package-lock.json"]
    directory, there = _built(f"js-{program}", *sources)
    if not there:
        for source in sources:
            shutil.copy(source, directory)
        # Linked with what the system has: its other way fetches the sources of four libraries from elsewhere.
        run([npm, "ci", "--no-audit", "--no-fund"], directory, {**os.environ, "CKJS_LINKING": "dynamic"})
        (directory / "done").touch()
    return ["env", f"COMPAT_MODULES={directory}", node, str(home / "driver.mjs"), program]


def rust_command() -> Sequence[str]:
    """The driver in Rust, with the source of librdkafka that its package brings. Raises Missing."""
    cargo, home = tool("cargo"), SOURCES / "rust"
    directory, there = _built("rust", home / "Cargo.toml", home / "Cargo.lock", home / "src" / "main.rs")
    if not there:
        # What it is linked with is compiled once for all versions of the driver.
        environment = {**os.environ, "CARGO_TARGET_DIR": str(CACHE / "rust-target")}
        run([cargo, "build", "--release", "--locked", "--quiet"], home, environment)
        shutil.copy(CACHE / "rust-target" / "release" / "duramen-compat", directory / "driver")
        (directory / "done").touch()
    return [str(directory / "driver")]
