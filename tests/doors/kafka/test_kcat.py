"""Debian's kcat 1.7, which brings the old librdkafka 2.0.2."""

import json

import pytest
from tests.clients import CONFLUENT, LIBRARIES, Library, Place, Read, Record
from tests.doors.kafka.conftest import Kcat
from tests.raw import Wanted, connect, fetch_bytes

from duramen.codec.batch import batches
from duramen.codec.compression import CODECS
from duramen.node.process import NodeProcess


@pytest.mark.parametrize("reader", LIBRARIES, ids=lambda reader: reader.name)
def test_what_kcat_produces_others_consume(node: NodeProcess, stream_name: str, kcat: Kcat, reader: Library) -> None:
    kcat(node, ["-P", "-t", stream_name, "-K", ":", "-H", "h=1", "-X", "enable.idempotence=true"], b"k:a\nl:b\n:c\n")
    found = reader.consume(node.kafka, stream_name, 1, 3)
    assert [(read.key, read.value, read.headers) for read in found] == [
        (b"k", b"a", (("h", b"1"),)), (b"l", b"b", (("h", b"1"),)), (b"", b"c", (("h", b"1"),)),
    ]  # fmt: skip


def test_what_others_produce_kcat_consumes(node: NodeProcess, stream_name: str, kcat: Kcat, library: Library) -> None:
    records = [Record(b"%d" % number, b"key", (("h", b"1"),), 1000 + number, 0) for number in range(100)]
    library.produce(node.kafka, stream_name, records)
    lines = kcat(node, ["-C", "-t", stream_name, "-o", "beginning", "-e", "-q", "-J"]).splitlines()
    found = [json.loads(line) for line in lines]
    assert [(line["offset"], line["key"], line["payload"], line["headers"], line["ts"]) for line in found] == [
        (number, "key", str(number), ["h", "1"], 1000 + number) for number in range(100)
    ]


@pytest.mark.variants(1)
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_kcat_compresses(node: NodeProcess, stream_name: str, kcat: Kcat, compression: str) -> None:
    given = b"".join(b"a line that repeats itself %d\n" % number for number in range(500))
    kcat(node, ["-P", "-t", stream_name, "-z", compression, "-X", "linger.ms=1000"], given)
    connection = connect(node)
    (answer,) = fetch_bytes(connection, stream_name, Wanted(0, 0))
    connection.close()
    assert {CODECS[head.attributes & 7] for _, head in batches(answer.records) if head.records > 9} == {compression}
    assert kcat(node, ["-C", "-t", stream_name, "-e", "-q"]) == given


def test_kcat_asks_for_metadata_and_offsets(node: NodeProcess, stream_name: str, kcat: Kcat) -> None:
    places = CONFLUENT.produce(node.kafka, stream_name, [Record(b"x", timestamp_ms=1000 + at) for at in range(10)])
    assert places[-1] == Place(0, 9)
    listing = json.loads(kcat(node, ["-L", "-J", "-t", stream_name]))
    assert [broker["name"] for broker in listing["brokers"]] == [node.kafka]
    assert [len(topic["partitions"]) for topic in listing["topics"]] == [1]
    assert kcat(node, ["-Q", "-t", f"{stream_name}:0:1004"]).strip() == b"%s [0] offset 4" % stream_name.encode()
    assert kcat(node, ["-C", "-t", stream_name, "-o", "s@1008", "-e", "-q", "-f", "%o\n"]) == b"8\n9\n"


def test_kcat_is_a_member_of_a_group(node: NodeProcess, stream_name: str, kcat: Kcat) -> None:
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"%d" % number) for number in range(50)])
    arguments = ["-G", stream_name, "-e", "-q", "-X", "auto.offset.reset=earliest", stream_name]
    assert kcat(node, arguments).split() == [b"%d" % number for number in range(50)]
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"more")])
    assert kcat(node, arguments).split() == [b"more"]
    found = CONFLUENT.consume(node.kafka, stream_name, 1, 51)
    assert isinstance(found[-1], Read)
