"""What one client produces is what every client consumes, whichever library each of them is."""

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, LIBRARIES, Library, Place, Read, Record

from duramen.node.process import NodeProcess

_NOW_MS = int(time.time() * 1000)

_EVERY_KIND: Sequence[Record] = (
    Record(b"plain", timestamp_ms=_NOW_MS, partition=0),
    Record(b"", b"", (), _NOW_MS + 1, 0),
    Record(None, b"tombstone", (), _NOW_MS - 86_400_000, 0),
    Record(bytes(range(256)), bytes(range(255, -1, -1)), (("one", b"1"), ("two", b""), ("one", b"again")), 1, 0),
    Record("Grüße".encode(), None, (("ключ", "значение".encode()),), 0, 0),
    Record(b"x" * 900_000, b"large", (), _NOW_MS, 0),
    Record(b"last", None, (("n" * 3000, b"v" * 3000),), _NOW_MS, 0),
)


def _create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
        future.result(60)


@pytest.mark.parametrize("reader", LIBRARIES, ids=lambda reader: reader.name)
def test_every_kind_of_record_comes_back_as_it_went_in(
    node: NodeProcess, stream_name: str, library: Library, reader: Library
) -> None:
    # confluent-kafka takes a timestamp of 0 for "now".
    records = [record._replace(timestamp_ms=record.timestamp_ms or 1) for record in _EVERY_KIND]
    places = library.produce(node.kafka, stream_name, records)
    assert places == [Place(0, offset) for offset in range(len(records))]
    found = reader.consume(node.kafka, stream_name, 1, len(records))
    assert found == [
        Read(place, record.key, record.value, record.headers, record.timestamp_ms or 0, 0)
        for place, record in zip(places, records, strict=True)
    ]


@pytest.mark.variants(4)
@pytest.mark.parametrize(
    ("acks", "idempotent"), [(0, False), (1, False), (-1, False), (-1, True)], ids=["0", "1", "all", "idempotent"]
)
def test_acknowledged_or_not_every_record_is_stored_once_and_in_order(
    node: NodeProcess, admin: AdminClient, stream_name: str, library: Library, acks: int, idempotent: bool
) -> None:
    _create(admin, stream_name, 3)
    records = [Record(b"%d" % number, b"key %d" % (number % 17)) for number in range(2000)]
    places = library.produce(node.kafka, stream_name, records, acks=acks, idempotent=idempotent)
    found = CONFLUENT.consume(node.kafka, stream_name, 3, len(records))
    assert sorted(read.place for read in found) == sorted({read.place for read in found})
    if acks:
        assert {read.place: read.value for read in found} == {
            place: record.value for place, record in zip(places, records, strict=True)
        }
    by_key: dict[bytes | None, list[Read]] = defaultdict(list)
    for read in sorted(found):
        by_key[read.key].append(read)
    for reads in by_key.values():
        assert len({read.place.partition for read in reads}) == 1
        assert all(int(one.value or b"") < int(next_.value or b"") for one, next_ in pairwise(reads))


def test_libraries_agree_where_a_key_belongs(node: NodeProcess, admin: AdminClient, stream_name: str) -> None:
    _create(admin, stream_name, 7)
    records = [Record(b"x", b"key %d" % number) for number in range(100)]
    # librdkafka's own default is CRC-32; the two in Python hash as the Java client does.
    first, second = (
        [place.partition for place in library.produce(node.kafka, stream_name, records)]
        for library in (KAFKA_PYTHON, AIOKAFKA)
    )
    assert first == second
    assert set(first) == set(range(7))


@pytest.mark.parametrize("reader", LIBRARIES, ids=lambda reader: reader.name)
def test_the_time_of_the_append_where_it_is_asked_for(
    node: NodeProcess, admin: AdminClient, stream_name: str, reader: Library
) -> None:
    _create(admin, stream_name, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    for library in LIBRARIES:
        library.produce(node.kafka, stream_name, [Record(b"x", timestamp_ms=1)] * 3)
    after_ms = int(time.time() * 1000)
    found = reader.consume(node.kafka, stream_name, 1, 9)
    assert [read.timestamp_type for read in found] == [1] * 9
    assert all(before_ms <= read.timestamp_ms <= after_ms for read in found)


@pytest.mark.parametrize(
    ("library", "reader", "compression"),
    [
        (library, reader, compression)
        for library in LIBRARIES for reader in LIBRARIES for compression in library.compressions[1:]
        if compression in reader.compressions
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)  # fmt: skip
def test_every_compression_is_read_by_every_library(
    node: NodeProcess, stream_name: str, library: Library, compression: str, reader: Library
) -> None:
    records = [Record(b"value %d " % number * 50, b"key") for number in range(300)]
    library.produce(node.kafka, stream_name, records, compression=compression)
    found = reader.consume(node.kafka, stream_name, 1, len(records))
    assert [(read.key, read.value) for read in found] == [(record.key, record.value) for record in records]
