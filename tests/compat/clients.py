"""The clients that are led through the list, and how the driver of each is made."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["PYTHON", "Client", "Command", "Missing"]


_ROOT: Final = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """There is no toolchain for a client here; the text says which."""


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


PYTHON: Final = (
    Client("confluent-kafka", "Python", _module("confluent")),
    Client("kafka-python", "Python", _module("kafka_python")),
    Client("aiokafka", "Python", _module("aio")),
    Client("kcat", "C, shell", _kcat),
)
