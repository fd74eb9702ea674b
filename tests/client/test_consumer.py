"""Reading: positions, ranges, errors, transactions."""

import uuid
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import OffsetOutOfRange, RequestTimedOut, StreamNotFound
from duramen.client import BrokerCluster, Consumer, Isolation, Producer, StreamAdmin, TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.client.fetch_result import whole_batches
from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, batches, encode, records
from duramen.codec.kafka.fetch import PartitionRecords
from duramen.node.process import NodeProcess

T0 = 1_700_000_000_000


def values(pieces: Iterable[memoryview]) -> list[bytes | None]:
    return [
        record.value
        for piece in pieces
        for place, head in batches(piece)
        for record in records(piece[place : place + head.size])
    ]


def fill(cluster: BrokerCluster, stream: str, count: int, *, partitions: int = 3) -> list[TopicPartition]:
    with Producer(cluster, batch_bytes=1000) as producer:
        for number in range(count):
            producer.produce(stream, b"%05d" % number, partition=number % partitions, timestamp_ms=T0 + number)
    return [TopicPartition(stream, index) for index in range(partitions)]


def test_offsets_by_time_and_ends(cluster: BrokerCluster, stream: str) -> None:
    ats = fill(cluster, stream, 300)
    consumer = Consumer(cluster)
    assert consumer.offsets(dict(zip(ats, (EARLIEST, LATEST, T0 + 150), strict=True))) == dict(
        zip(ats, (0, 100, 50), strict=True)
    )
    assert consumer.offsets({ats[0]: T0 + 300, ats[1]: 0}) == {ats[0]: -1, ats[1]: 0}
    assert consumer.bounds(ats) == dict.fromkeys(ats, (0, 100))
    assert consumer.offsets({}) == {}


def test_fetch_gives_batches_of_many_partitions(cluster: BrokerCluster, stream: str) -> None:
    ats = fill(cluster, stream, 3000)
    consumer = Consumer(cluster, partition_max_bytes=5000)
    positions = dict.fromkeys(ats, 0)
    found: dict[TopicPartition, list[bytes | None]] = {at: [] for at in ats}
    while any(len(one) < 1000 for one in found.values()):
        for fetched in consumer.fetch(positions):
            found[fetched.at] += values(fetched.pieces)
            positions[fetched.at] = fetched.next_offset
            assert fetched.high_watermark == 1000
    for index, at in enumerate(ats):
        assert found[at] == [b"%05d" % number for number in range(index, 3000, 3)]
    assert [values(fetched.pieces) for fetched in consumer.fetch(positions, max_wait_ms=1)] == [[], [], []]


def test_read_gives_a_range(cluster: BrokerCluster, stream: str) -> None:
    at = fill(cluster, stream, 3000)[1]
    consumer = Consumer(cluster, partition_max_bytes=3000)
    found = values(consumer.read(at, 123, 777))
    # Whole batches: what surrounds the range may come along.
    wanted = [b"%05d" % number for number in range(1, 3000, 3)][123:777]
    first = found.index(wanted[0])
    assert found[first : first + len(wanted)] == wanted
    assert len(found) < len(wanted) + 200
    assert list(consumer.read(at, 5, 5)) == []


def test_reading_that_is_left_early_is_in_nobodys_way(cluster: BrokerCluster, stream: str) -> None:
    at = fill(cluster, stream, 3000)[0]
    consumer = Consumer(cluster, partition_max_bytes=2000)
    reading = consumer.read(at, 0, 1000)
    next(reading)
    reading.close()
    assert consumer.bounds([at]) == {at: (0, 1000)}
    assert len(values(consumer.read(at, 0, 1000))) == 1000


def test_out_of_range_is_said_or_gone_around(cluster: BrokerCluster, stream: str) -> None:
    at = fill(cluster, stream, 30)[0]
    consumer = Consumer(cluster)
    with pytest.raises(OffsetOutOfRange, match=f"{stream}-0 has offsets 0 to 9, not 50"):
        list(consumer.read(at, 50, 60))
    with pytest.raises(OffsetOutOfRange, match=f"{stream}-0 has no offset 50"):
        consumer.fetch({at: 50})
    gaps = []

    def on_gap(wanted: int, there: int) -> int:
        gaps.append((wanted, there))
        return there

    assert list(consumer.read(at, 50, 60, on_gap=on_gap)) == []
    assert gaps == [(50, 60)]


@pytest.mark.long
def test_records_that_were_promised_and_do_not_come(node: NodeProcess, stream: str) -> None:
    with BrokerCluster(node.kafka, timeout_s=10) as cluster:
        at = fill(cluster, stream, 30)[0]
        with pytest.raises(RequestTimedOut, match=f"{stream}-0 ends at 10; records up to 20 were promised"):
            list(Consumer(cluster).read(at, 10, 20))


def test_a_stream_of_the_same_name_is_another_one(cluster: BrokerCluster, stream: str) -> None:
    at = fill(cluster, stream, 30)[0]
    consumer = Consumer(cluster)
    topic_id = cluster.topic(stream).id
    assert len(values(consumer.read(at, 0, 10, topic_id=topic_id))) == 10
    StreamAdmin(cluster).delete_stream(stream)
    with pytest.raises(StreamNotFound, match=f"there is no stream {stream}"):
        list(consumer.read(at, 0, 10, topic_id=topic_id))
    StreamAdmin(cluster).create_stream(stream, 3)
    fill(cluster, stream, 30)
    with pytest.raises(StreamNotFound, match="was deleted and created again"):
        list(consumer.read(at, 0, 10, topic_id=topic_id))
    assert len(values(consumer.read(at, 0, 10))) == 10


def test_no_such_partition(cluster: BrokerCluster, stream: str) -> None:
    consumer = Consumer(cluster)
    with pytest.raises(StreamNotFound, match=f"stream {stream} has no partition 9"):
        consumer.offsets({TopicPartition(stream, 9): EARLIEST})
    with pytest.raises(StreamNotFound, match="there is no stream nobody-made-this"):
        consumer.fetch({TopicPartition("nobody-made-this", 0): 0})


def test_reading_goes_on_after_the_broker_was_killed(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node, BrokerCluster(node.kafka, timeout_s=60) as cluster:
        StreamAdmin(cluster).create_stream("s", 3)
        at = fill(cluster, "s", 30_000)[0]
        reading = Consumer(cluster, partition_max_bytes=2000).read(at, 0, 10_000)
        pieces = [next(reading)]
        node.kill()
        node.restart()
        pieces += reading
        assert values(pieces) == [b"%05d" % number for number in range(0, 30_000, 3)]


def test_offsets_are_committed_for_tools_to_see(node: NodeProcess, cluster: BrokerCluster, stream: str) -> None:
    ats = fill(cluster, stream, 30)
    Consumer(cluster).commit(f"{stream}-group", {ats[0]: 7, ats[2]: 3})
    theirs = Librdkafka({"bootstrap.servers": node.kafka, "group.id": f"{stream}-group"})
    committed = theirs.committed([LibrdkafkaPartition(stream, index) for index in range(3)], timeout=60)
    theirs.close()
    assert [one.offset for one in committed] == [7, -1001, 3]


# -- transactions, of which Duramen has none yet ------------------------------------------------------


@given(st.data())
def test_records_of_aborted_transactions_are_left_out(draw: st.DataObject) -> None:
    """Against a log written as Kafka writes it: batches of a few producers, each transaction ended by a marker."""
    log, offset = bytearray(), 0
    open_since: dict[int, int] = {}
    waiting: dict[int, list[bytes]] = {}
    committed: list[bytes] = []
    everything: list[bytes] = []
    aborted: list[tuple[int, int]] = []
    for producer_id, what in draw.draw(
        st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["plain", "write", "commit", "abort"])), max_size=30)
    ):
        value = b"%d" % offset
        if what in ("commit", "abort"):
            if producer_id not in open_since:
                continue
            first = open_since.pop(producer_id)
            written = waiting.pop(producer_id)
            if what == "commit":
                committed += written
            else:
                aborted.append((producer_id, first))
            attributes = TRANSACTIONAL | CONTROL
        else:
            everything.append(value)
            attributes = TRANSACTIONAL if what == "write" else 0
            if what == "write":
                open_since.setdefault(producer_id, offset)
                waiting.setdefault(producer_id, []).append(value)
            else:
                committed.append(value)
        log += encode(
            [BatchInput(0, None, value)], base_offset=offset, attributes=attributes, producer_id=producer_id,
            producer_epoch=0, base_sequence=0,
        )  # fmt: skip
        offset += 1
    # What is open lies at or after the last stable offset: a broker does not give it to such a reader.
    stable = min(open_since.values(), default=offset)
    answer = PartitionRecords(uuid.uuid4(), 0, 0, offset, 0, memoryview(log), draw.draw(st.permutations(aborted)))

    def seen(isolation: Isolation) -> list[bytes]:
        fetched = whole_batches(TopicPartition("s", 0), 0, answer, isolation)
        assert fetched.next_offset == offset
        return [
            record.value or b""
            for piece in fetched.pieces
            for place, head in batches(piece)
            if not head.attributes & CONTROL
            for record in records(piece[place : place + head.size])
        ]

    assert seen(Isolation.READ_UNCOMMITTED) == everything
    below = [value for value in seen(Isolation.READ_COMMITTED) if int(value) < stable]
    assert below == sorted((value for value in committed if int(value) < stable), key=int)


@given(st.integers(0, 200))
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(size: int) -> None:
    whole = encode([BatchInput(0, None, b"x")] * 3) + encode([BatchInput(0, None, b"y" * 50)], base_offset=3)
    answer = PartitionRecords(uuid.uuid4(), 0, 0, 4, 0, memoryview(whole)[: len(whole) - size])
    fetched = whole_batches(TopicPartition("s", 0), 0, answer, Isolation.READ_UNCOMMITTED)
    assert values(fetched.pieces) == [b"x", b"x", b"x", b"y" * 50][: fetched.next_offset]
    assert fetched.next_offset in (0, 3, 4)
