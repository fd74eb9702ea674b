"""Retention waits for a stream's table, as far as it is bounded to."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.clients import until
from tests.spark.translation.world import World, transactional

from duramen.base.errors import ConfigInvalid, RecordsLost
from duramen.client import BrokerCluster, StreamAdmin, TopicPartition
from duramen.client.consumer import Consumer
from duramen.node.process import NodeProcess
from duramen.spark.tables.registry import open_dead_letters, open_table
from duramen.spark.translation import task
from duramen.spark.translation.log import SourceLog
from duramen.spark.translation.round import RoundOutcome
from duramen.spark.translation.table_writer import TableWriter

NONE: dict[str, Any] = {"decode": "none"}
KEPT = {"retention.records": "10", "segment.bytes": "200", "segment.jitter.ms": "0", "file.delete.delay.ms": "0"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "data", {"log.retention.check.interval.ms": 50}) as process:
        yield process


@pytest.fixture
def world(node: NodeProcess, cluster: BrokerCluster, tmp_path: Path) -> World:
    """A stream of which retention keeps ten records, and thirty for its table."""
    table = {"table.format": "delta", "table.location": str(tmp_path / "table"), "table.retention.multiple": "3"}
    StreamAdmin(cluster).create_stream("held", 1, KEPT | table)
    return World(node.kafka, cluster, "held", tmp_path / "table")


def start(world: World) -> int:
    [both] = Consumer(world.cluster).bounds([TopicPartition(world.stream, 0)]).values()
    return both[0]


def write(world: World, count: int) -> None:
    """In batches of five, each a segment."""
    for _ in range(0, count, 5):
        world.produce([b"x" * 100] * 5, partitions=1)


def attend(world: World) -> RoundOutcome:
    """What a job does of the table in one turn, with all that it tells."""

    def tables(_: object) -> Any:
        return open_table(world.declaration(**NONE)), open_dead_letters(world.declaration(**NONE))

    round_ = world.rounds(tables, lambda tasks: [task.run(one) for one in tasks], 2, **NONE)
    made = TableWriter(
        SourceLog(world.kafka, world.stream, world.stream_id), round_, lambda: open_table(world.declaration(**NONE)),
        keep_ms=1_000_000,
    )  # fmt: skip
    made.stop_at_the_end()
    with closing(made):
        return made.attend()


@pytest.fixture
def bare(world: World, cluster: BrokerCluster, tmp_path: Path) -> World:
    """The same without a table: what retention does there shows that it has looked."""
    StreamAdmin(cluster).create_stream("bare", 1, KEPT)
    return World(world.kafka, cluster, "bare", tmp_path / "none")


def looked(bare: World) -> None:
    """Wait until retention has looked at all logs."""
    before = start(bare)
    write(bare, 25)
    until(lambda: start(bare) > before)


@pytest.mark.long
def test_what_the_table_does_not_have_stays_up_to_a_multiple_of_what_is_kept(world: World, bare: World) -> None:
    write(world, 25)
    looked(bare)
    assert start(world) == 0, "thirty are kept for the table"
    attend(world)
    until(lambda: start(world) > 10)
    write(world, 60)
    until(lambda: start(world) > 40)
    assert start(world) <= 55
    with pytest.raises(RecordsLost, match="are gone from the log"):
        attend(world)


@pytest.mark.long
def test_the_beginning_of_what_is_open_stays(world: World, bare: World) -> None:
    late = transactional(world, "late")
    late.produce(world.stream, b"late", b"k", 0)
    assert late.flush(30) == 0
    write(world, 20)
    assert attend(world).records == 20
    looked(bare)
    assert start(world) == 0
    late.commit_transaction(30)
    assert attend(world).records == 1
    until(lambda: start(world) > 0)
    assert len(world.rows(**NONE)) == 21


@pytest.mark.long
def test_a_stream_that_is_no_table_any_more_is_not_held(world: World) -> None:
    write(world, 25)
    StreamAdmin(world.cluster).set_stream_configs(world.stream, {"table.retention.multiple": "1"})
    until(lambda: start(world) > 10)
    StreamAdmin(world.cluster).set_stream_configs(world.stream, {"table.retention.multiple": "3"})
    before = start(world)
    write(world, 15)
    with pytest.raises(ConfigInvalid, match=r"table\.kept\.offsets"):
        StreamAdmin(world.cluster).set_stream_configs(world.stream, {"table.kept.offsets": "0:-1"})
    assert start(world) == before
    StreamAdmin(world.cluster).set_stream_configs(world.stream, {"table.format": "none"})
    until(lambda: start(world) > before)
