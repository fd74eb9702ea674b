"""A node as a process whose rows are damaged on disk, in blocks that the rows and their checkpoints share."""

import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.cli.command import run
from tests.clients import metric, until
from tests.coordinators.queue.often import PROGRAM

import duramen
from duramen.base.errors import DuramenError, StateDamaged
from duramen.client.http import HttpNode
from duramen.codec.partitioner import partition_of
from duramen.node.processes import NodeProcesses
from duramen.spark.options import Options
from duramen.spark.read.exports import QueuesReader

CONFIG: Final = {"queue.log.retention.ms": "0", "segment.bytes": "16384"}
MARK: Final = b"these-rows-are-damaged"
SHARDS: Final = 2
LOST, WHOLE = (next(name for name in "abcdefgh" if partition_of(name.encode(), SHARDS) == shard) for shard in (0, 1))
WAIT_S: Final = 30
ENTRIES: Final = 80
AT_ONCE_S: Final = 10


class Spaces:
    """A node with two spaces whose logs are cut. Entries of one queue of `mail` have a mark."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self.nodes = nodes
        self.node = nodes.nodes[1]
        self._random = random.Random(1)
        for name in ("mail", "other"):
            HttpNode(self.node.http).post("/v1/spaces", {"name": name, "shards": SHARDS, "config": CONFIG})
        for name in ("mail", "other"):
            for _ in range(ENTRIES):
                self.put(name, LOST, MARK if name == "mail" else b"")
                self.put(name, WHOLE)
        until(lambda: all(self.log_start(name, shard) > 0 for name in ("mail", "other") for shard in (0, 1)), WAIT_S)

    def put(self, name: str, queue: str, mark: bytes = b"") -> None:
        # It does not compress, so that the mark is in a file as it is.
        value = self._random.randbytes(700) + mark + self._random.randbytes(700)
        with duramen.connect(self.node.http) as client:
            client.queues(name).enqueue(queue, [value])

    def count(self, name: str, queue: str) -> int:
        with duramen.connect(self.node.http) as client:
            return len(client.queues(name).retrieve(queue, limit=10_000).entries)

    def log_start(self, name: str, shard: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.node.kafka, "group.id": "g"})
        low, _ = consumer.get_watermark_offsets(TopicPartition(name, shard), WAIT_S)
        consumer.close()
        return int(low)

    def damage(self, number: int = 1) -> int:
        """Flip bits of the marks in tables where they are, and of all links to them; returns their number.

        The first and the last ones may be in a block with rows of other queues.
        """
        flipped, seen = 0, set[int]()
        for table in self.nodes.nodes[number].data_dir.glob("coordinators/**/*.sst"):
            if table.stat().st_ino not in seen:
                seen.add(table.stat().st_ino)
                places = [found.start() for found in re.finditer(MARK, table.read_bytes())][2:-2]
                with table.open("r+b") as file:
                    for at in places:
                        file.seek(at)
                        file.write(b"T")
                flipped += len(places)
        return flipped

    def recovered(self) -> bool:
        """Whether damage was found since the node's start, and nothing is lost now."""
        return metric(self.node, "duramen_rows_damaged_total") > 0 == metric(self.node, "duramen_states_lost")

    def in_sync(self) -> bool:
        """Whether all replicas of both spaces are in sync."""
        found = HttpNode(self.node.http).get("/v1/streams/mail")
        return all(len(one["in_sync"]) == 3 for one in found["partitions"])

    def page(self, path: str) -> str:
        with urlopen(f"http://{self.node.http}{path}") as answer:
            text: str = answer.read().decode()
            return text

    def refusals(self) -> Iterator[DuramenError | None]:
        """What requests to the lost queue get, each at once."""
        with duramen.connect(self.node.http) as client:
            queues = client.queues("mail")
            calls: list[Callable[[], Any]] = [
                lambda: queues.retrieve(LOST), lambda: queues.enqueue(LOST, [b"value"]), lambda: queues.stats(LOST),
                lambda: queues.lease([LOST], 1), lambda: queues.purge(LOST),
            ]  # fmt: skip
            for call in calls:
                began_s = time.monotonic()
                try:
                    call()
                except DuramenError as error:
                    yield error
                else:
                    yield None
                assert time.monotonic() - began_s < AT_ONCE_S

    def produced(self) -> KafkaError | None:
        """What a Kafka producer of the lost queue is told."""
        told = list[KafkaError | None]()
        producer = Producer({
            "bootstrap.servers": self.node.kafka, "partitioner": "murmur2_random", "retries": 0,
            "delivery.timeout.ms": 20_000,
        })  # fmt: skip

        def delivered(error: KafkaError | None, _: Message) -> None:
            told.append(error)

        producer.produce("mail", b"value", LOST.encode(), on_delivery=delivered)
        producer.flush(WAIT_S)
        return told[0]

    def check_missing(self, reason: str) -> None:
        """Names and counts are those of the other shard, with a note of the lost one."""
        with duramen.connect(self.node.http) as client:
            queues = client.queues("mail")
            with pytest.warns(RuntimeWarning, match="names of queues of mail are missing: shard 0: the rows"):
                assert queues.queues() == [WHOLE]
            page, usage = queues.names(), queues.usage()
        missing = [duramen.MissingShard(0, reason)]
        assert ([*page.queues], [*page.missing_shards]) == ([WHOLE], missing)
        assert (usage.entries, [*usage.missing_shards]) == (ENTRIES, missing)
        for command, line in (("list", WHOLE), ("stats", f"Queue space mail: {ENTRIES} entries")):
            out = run("queue", command, "mail", server=self.node.http)
            assert out.code == 1
            assert out.out.startswith(line)
            assert f"The queues of shard 0 of mail are missing: {reason}" in out.err

    def check_export(self) -> None:
        """Spark's table of the space is refused, or has the other shard."""

        def reader(**options: str) -> QueuesReader:
            return QueuesReader(Options({"server": self.node.http, "queues": "mail", **options}, "batch"))

        with pytest.raises(StateDamaged, match=r"partition 0 of mail .*; with failOnDataLoss=false the query reads"):
            reader().partitions()
        lenient = reader(failOnDataLoss="false")
        rows = [row for part in lenient.partitions() for batch in lenient.read(part) for row in batch.to_pylist()]
        assert [row["queue"] for row in rows] == [WHOLE] * ENTRIES

    def check(self) -> None:
        """Each door names the error, and all other queues go on."""
        refused = [*self.refusals()]
        assert [type(error) for error in refused] == [StateDamaged] * 5
        assert all(re.search(r"\.sst.*; they are in .*/rows\.damaged/\d+-rows now", str(error)) for error in refused)
        self.check_missing(str(refused[0]))
        self.check_export()
        told = self.produced()
        assert told is not None
        assert told.code() == KafkaError.KAFKA_STORAGE_ERROR
        out = run("queue", "get", "mail", LOST, server=self.node.http)
        assert out.code == 1
        assert "partition 0 of mail" in out.err
        assert [self.count("mail", WHOLE), self.count("other", LOST), self.count("other", WHOLE)] == [ENTRIES] * 3
        assert "the rows of 1 partition are lost" in self.page("/readyz")
        assert "duramen_states_lost 1\n" in self.page("/metrics")
        assert any((self.node.data_dir / "coordinators" / "rows.damaged").iterdir())


@pytest.fixture
def spaces(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Spaces]:
    settings = {"nats.server": "off"}
    with NodeProcesses(tmp_path, request.param, settings, programs=dict.fromkeys((1, 2, 3), PROGRAM)) as nodes:
        yield Spaces(nodes)


@pytest.mark.long
@pytest.mark.parametrize("spaces", [1], indirect=True)
def test_blocks_that_checkpoints_share_cost_one_shard_and_each_door_says_so(spaces: Spaces) -> None:
    spaces.node.kill()
    assert spaces.damage()
    spaces.node.start()
    for _ in range(2):
        spaces.check()
        spaces.node.kill()
        spaces.node.start()


@pytest.mark.long
@pytest.mark.parametrize("spaces", [1], indirect=True)
def test_damage_that_rocksdb_meets_in_a_compaction_stops_nobody(spaces: Spaces) -> None:
    spaces.nodes.stop(1)
    spaces.node.start()
    assert spaces.damage()
    aside, entries = spaces.node.data_dir / "coordinators" / "rows.damaged", ENTRIES
    while not aside.exists():
        assert entries < 100 * ENTRIES
        spaces.put("other", WHOLE)
        entries += 1
    spaces.put("other", WHOLE)
    assert spaces.count("other", WHOLE) == entries + 1
    assert [type(error) for error in spaces.refusals()] == [StateDamaged] * 5


@pytest.mark.long
@pytest.mark.parametrize("spaces", [3], indirect=True)
def test_on_a_cluster_the_rows_come_from_another_replica(spaces: Spaces) -> None:
    for number, damaged in spaces.nodes.nodes.items():
        damaged.kill()
        assert spaces.damage(number)
        damaged.start()
        spaces.node = damaged
        until(spaces.recovered, WAIT_S)
        until(spaces.in_sync, WAIT_S)
    for queue in (LOST, WHOLE):
        assert spaces.count("mail", queue) == ENTRIES
        assert spaces.count("other", queue) == ENTRIES
