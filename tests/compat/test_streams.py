"""Kafka Streams with exactly_once_v2: a word count with a state store and a repartition topic, killed and restarted."""

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.clients import CONFLUENT, Record
from tests.compat.building import Missing, java_program, kafka_jars, tool
from tests.compat.conftest import settings
from tests.compat.results import Results
from tests.compat.staging import made
from tests.untyped import untyped

from duramen.client import BrokerCluster
from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long

_VERSION: Final = "4.1.1"
_WORDS: Final = ("heart", "wood", "oak", "ring", "bark", "leaf")
_WAIT_S: Final = 120.0


class Streams:
    """The program, started and killed."""

    def __init__(self, node: NodeProcess, directory: Path) -> None:
        self.node = node
        self.directory = directory
        lib = kafka_jars(_VERSION)
        classes = java_program("WordCount", lib)
        self._command = [tool("java"), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                         f"{classes}:{lib}/*", "WordCount"]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def start(self, source: str, target: str) -> None:
        """Start it, and wait until it runs."""
        arguments = [self.node.kafka, str(self.directory / "state"), source, target]
        with (self.directory / "streams.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "running", (self.directory / "streams.log").read_text()[
            -3000:
        ]

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """Streams and a node."""
    # A task of a killed instance is locked until its transaction has timed out.
    with NodeProcess(tmp_path / "data", settings()) as node:
        try:
            found = Streams(node, tmp_path)
        except Missing as missing:
            pytest.skip(str(missing))
        yield found
        found.kill()


def _counts(node: NodeProcess, topic: str, wanted: Counter[str]) -> list[tuple[str, int]]:
    """Every update of the counts that is committed, in order, until they are the wanted ones."""
    kafka = untyped("confluent_kafka")
    consumer = kafka.Consumer(
        {"bootstrap.servers": node.kafka, "group.id": "reader", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, index, kafka.OFFSET_BEGINNING) for index in range(2)])
        found: list[tuple[str, int]] = []
        latest: Counter[str] = Counter()
        while latest != wanted:
            message = consumer.poll(_WAIT_S)
            assert message is not None, f"it counts {dict(latest)}, there are {dict(wanted)}"
            assert message.error() is None
            found.append((message.key().decode(), int(message.value())))
            latest[found[-1][0]] = found[-1][1]
            assert latest[found[-1][0]] <= wanted[found[-1][0]], f"it counts too many: {found[-1]}"
        return found
    finally:
        consumer.close()


def test_words_are_counted_exactly_once(streams: Streams) -> None:
    results = Results("Kafka Streams", _VERSION, "Java")
    results.show(
        "exactly_once_v2: word count with a state store and a repartition topic, killed and restarted, exact counts",
        lambda: _count(streams), streams.node, (22, 24, 25, 26, 28),
    )  # fmt: skip
    results.write()


def _count(streams: Streams) -> None:
    node = streams.node
    source, target = made(node, 2), made(node, 2)
    chance, wanted = random.Random(6), Counter[str]()
    for turn in range(3):
        streams.start(source, target)
        lines = [" ".join(chance.choices(_WORDS, k=5)) for _ in range(300)]
        wanted.update(word for line in lines for word in line.split())
        CONFLUENT.produce(
            node.kafka, source, [Record(line.encode(), b"", (), None, at % 2) for at, line in enumerate(lines)]
        )
        if turn == 1:
            node.kill()
            node.restart()
        if turn < 2:
            streams.kill()
    updates = _counts(node, target, wanted)
    for word in _WORDS:
        seen = [count for one, count in updates if one == word]
        assert seen == sorted(set(seen)), f"a count of {word} came twice or went back"
    with BrokerCluster(node.kafka) as cluster:
        names = set(cluster.topics())
    assert {f"{source}-app-words-repartition", f"{source}-app-counts-changelog"} <= names
