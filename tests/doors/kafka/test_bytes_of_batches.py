"""Batches go in and come out as they are, and a fetch gives whole ones."""

from threading import Thread

import pytest
from tests.clients import CONFLUENT, Record
from tests.raw import Wanted, batch_of, connect, fetch_bytes, produce_bytes

from duramen.codec.batch import batches, header
from duramen.codec.compression import CODECS
from duramen.codec.kafka.errors import ErrorCode
from duramen.node.process import NodeProcess

_UNPROTECTED = (slice(0, 8), slice(12, 16))  # base offset and leader epoch, which the broker stamps


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_a_batch_is_not_touched_on_its_way(node: NodeProcess, stream_name: str, codec: int) -> None:
    connection = connect(node)
    fetch_bytes(connection, stream_name, Wanted(0, 0))
    sent = [batch_of(*(b"%d %d" % (at, number) * 20 for number in range(50)), codec=codec) for at in range(3)]
    for at, batch in enumerate(sent):
        assert produce_bytes(connection, stream_name, batch).base_offset == 50 * at
    (answer,) = fetch_bytes(connection, stream_name, Wanted(0, 0))
    found = [bytearray(answer.records[place : place + head.size]) for place, head in batches(answer.records)]
    assert [header(batch).base_offset for batch in found] == [0, 50, 100]
    assert {header(batch).attributes & 7 for batch in found} == {codec}
    for before, after in zip(sent, found, strict=True):
        for stamped in _UNPROTECTED:
            after[stamped] = before[stamped]
        assert after == before
    connection.close()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_compressed_stays_compressed(node: NodeProcess, stream_name: str, compression: str) -> None:
    records = [Record(b"a value that repeats " * 20) for _ in range(500)]
    CONFLUENT.produce(node.kafka, stream_name, records, compression=compression)
    connection = connect(node)
    (answer,) = fetch_bytes(connection, stream_name, Wanted(0, 0))
    heads = [head for _, head in batches(answer.records)]
    assert {CODECS[head.attributes & 7] for head in heads} == {compression}
    assert sum(head.records for head in heads) == 500
    assert len(answer.records) < 500 * 20 * 20 // 4
    connection.close()


def test_a_fetch_gives_the_batch_around_the_offset_and_only_whole_ones(node: NodeProcess, stream_name: str) -> None:
    connection = connect(node)
    fetch_bytes(connection, stream_name, Wanted(0, 0))
    sizes = []
    for at in range(10):
        batch = batch_of(*(b"%d" % number * 100 for number in range(10)))
        sizes.append(len(batch))
        assert produce_bytes(connection, stream_name, batch).base_offset == 10 * at
    for offset in (0, 5, 9, 10, 99):
        (answer,) = fetch_bytes(connection, stream_name, Wanted(0, offset))
        first = header(answer.records)
        assert first.base_offset == offset // 10 * 10
        assert len(answer.records) == sum(sizes[offset // 10 :])
        assert (answer.high_watermark, answer.start_offset) == (100, 0)
    # The first batch comes whole, however little is asked for; a second one only where there is room for it.
    for max_bytes, expected in ((1, 1), (sizes[0], 1), (sum(sizes[:2]) - 1, 1), (sum(sizes[:2]), 2)):
        for wanted, limit in ((Wanted(0, 0, max_bytes), 1 << 24), (Wanted(0, 0), max_bytes)):
            (answer,) = fetch_bytes(connection, stream_name, wanted, max_bytes=limit)
            assert len(list(batches(answer.records))) == expected
            assert len(answer.records) == sum(sizes[:expected])
    (answer,) = fetch_bytes(connection, stream_name, Wanted(0, 100))
    assert (answer.error_code, len(answer.records), answer.high_watermark) == (0, 0, 100)
    for offset in (101, -1, 1 << 62):
        (answer,) = fetch_bytes(connection, stream_name, Wanted(0, offset))
        assert (answer.error_code, len(answer.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    connection.close()


def test_a_fetch_waits_until_there_is_enough(node: NodeProcess, stream_name: str) -> None:
    reader, writer = connect(node), connect(node)
    fetch_bytes(reader, stream_name, Wanted(0, 0))
    batch = batch_of(b"x" * 1000)
    # Three batches are less than what is waited for, four are enough; the wait is longer than the test may take.
    for _ in range(3):
        produce_bytes(writer, stream_name, batch)
    thread = Thread(target=produce_bytes, args=(writer, stream_name, batch))
    thread.start()
    (answer,) = fetch_bytes(reader, stream_name, Wanted(0, 0), min_bytes=3 * len(batch) + 1, max_wait_ms=300_000)
    thread.join()
    assert len(list(batches(answer.records))) == 4
    # And what is there after the time is up is better than nothing.
    (answer,) = fetch_bytes(reader, stream_name, Wanted(0, 0), min_bytes=1 << 20, max_wait_ms=1)
    assert len(list(batches(answer.records))) == 4
    reader.close()
    writer.close()
