"""Unmodified Kafka clients, and what the tests of this door share."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from tests.clients import LIBRARIES, Library

import duramen
from duramen.client.connection import BrokerConnection
from duramen.node.process import NodeProcess

_ROOT: Final = Path(__file__).resolve().parents[3] / ".cache" / "kcat" / "root" / "usr"

Kcat = Callable[..., bytes]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Library:
    """Each of the three libraries."""
    found: Library = request.param
    return found


@pytest.fixture(scope="session")
def kcat() -> Kcat:
    """Runs Debian's kcat 1.7 (librdkafka 2.0.2) and returns what it prints; `tools/kcat.py` brings it."""
    brought = _ROOT / "bin" / "kcat"
    program = str(brought) if brought.exists() else shutil.which("kcat")
    if program is None:
        pytest.skip("there is no kcat here, and no apt-get to bring it")
    libraries = ":".join(map(str, (_ROOT / "lib").glob("*-linux-*")))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries} if brought.exists() else dict(os.environ)

    def run(node: NodeProcess, arguments: Sequence[str], given: bytes = b"") -> bytes:
        done = subprocess.run(
            [program, "-b", node.kafka, *arguments], input=given, env=environment, capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run


@pytest.fixture
def admin(node: NodeProcess) -> AdminClient:
    """confluent-kafka's admin client."""
    return AdminClient({"bootstrap.servers": node.kafka})


@pytest.fixture
def raw(node: NodeProcess) -> Iterator[BrokerConnection]:
    """A connection below every client, for what they do not let through."""
    host, _, port = node.kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="raw", timeout_s=60)
    yield connection
    connection.close()


@pytest.fixture
def tenant(node: NodeProcess, stream_name: str) -> str:
    """A tenant of the test's own, with the namespaces prod and dev."""
    name = "t" + stream_name[-60:].strip("-")
    with duramen.connect(node.http) as client:
        client.inventory.create_tenants([name])
        client.inventory.create_namespaces(name, ["prod", "dev"])
    return name
