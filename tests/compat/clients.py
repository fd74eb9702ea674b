"""The clients that are led through the list, and how the driver of each is made."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.compat.building import Missing, go_command, java_command, js_command, rust_command

__all__ = ["GO", "JAVA", "JAVASCRIPT", "PYTHON", "RUST", "Client", "Command"]


_ROOT: Final = Path(__file__).resolve().parents[2]


class Command(NamedTuple):
    """What is run; the bootstrap address comes behind it."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = {}


class Client(NamedTuple):
    """A client. `make` builds its driver, once a run; it raises Missing."""

    name: str
    language: str
    make: Callable[[], Command]


def _module(name: str) -> Callable[[], Command]:
    return lambda: Command([sys.executable, "-m", f"tests.compat.drivers.{name}"])


def _kcat() -> Command:
    brought = _ROOT / ".cache" / "kcat" / "root" / "usr"
    program = str(brought / "bin" / "kcat") if brought.exists() else shutil.which("kcat")
    if program is None:
        raise Missing("there is no kcat here, and no apt-get to bring it")
    libraries = ":".join(map(str, (brought / "lib").glob("*-linux-*")))
    run = ["env", f"LD_LIBRARY_PATH={libraries}", program] if brought.exists() else [program]
    return Command(_module("kcat")().arguments, {"KCAT": json.dumps(run)})


def _java(version: str) -> Command:
    return Command(java_command(version))


PYTHON: Final = (
    Client("confluent-kafka", "Python", _module("confluent")),
    Client("kafka-python", "Python", _module("kafka_python")),
    Client("aiokafka", "Python", _module("aio")),
    Client("kcat", "C, shell", _kcat),
)

JAVA: Final = tuple(
    Client(f"kafka-clients {version}", "Java", partial(_java, version)) for version in ("4.4.0", "4.1.1")
)

GO: Final = (
    Client("franz-go", "Go", lambda: Command(go_command("franz"))),
    Client("sarama", "Go", lambda: Command(go_command("sarama"))),
)

JAVASCRIPT: Final = (
    Client("kafkajs", "JavaScript", lambda: Command(js_command("kafkajs"))),
    Client("confluent-kafka-javascript", "JavaScript", lambda: Command(js_command("confluent"))),
)

RUST: Final = (Client("rust-rdkafka", "Rust", lambda: Command(rust_command())),)
