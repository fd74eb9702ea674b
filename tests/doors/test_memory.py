"""Streams with durability=memory, at every door: the same answers, a bound, and the word that nothing survives."""

from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.cli.command import run
from tests.clients import CONFLUENT, LIBRARIES, Library, Record

import duramen
from duramen import errors
from duramen.client.cluster import BrokerCluster
from duramen.codec.kafka.versions import ApiKey
from duramen.testing import Broker

_WAIT_S: Final = 60.0
_MEANS: Final = "records are in bounded memory only; nothing survives a restart"


@pytest.fixture
def stream(duramen_broker: Broker, stream_name: str) -> str:
    """A stream in memory."""
    return duramen_broker.create_stream(stream_name, config={"durability": "memory", "memory.max.bytes": "1MiB"})


def read_on(broker: Broker, stream: str, count: int) -> list[int]:
    """The offsets that come where the group `stream` has committed, and commit them."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": stream, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(stream, 0)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(_WAIT_S)
        assert message is not None
        assert message.error() is None
        found.append(message.offset() or 0)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("idempotent", [False, True])
def test_clients_write_and_read(library: Library, idempotent: bool, duramen_broker: Broker, stream: str) -> None:
    address = duramen_broker.bootstrap_servers
    records = [Record(b"%d" % number, b"k", (("h", b"1"),)) for number in range(20)]
    places = library.produce(address, stream, records, idempotent=idempotent)
    assert [place.offset for place in places] == list(range(20))
    read = library.consume(address, stream, 1, 20)
    assert [(one.value, one.key, one.headers) for one in read] == [(one.value, one.key, one.headers) for one in records]


def test_offsets_deletion_and_the_bound(duramen_broker: Broker, stream: str) -> None:
    CONFLUENT.produce(duramen_broker.bootstrap_servers, stream, [Record(b"%d" % number) for number in range(10)])
    at = TopicPartition(stream, 0)
    consumer = Consumer({"bootstrap.servers": duramen_broker.bootstrap_servers, "group.id": "unused"})
    assert consumer.get_watermark_offsets(at, _WAIT_S) == (0, 10)
    admin = AdminClient({"bootstrap.servers": duramen_broker.bootstrap_servers})
    admin.delete_records([TopicPartition(stream, 0, 4)])[at].result(_WAIT_S)
    assert consumer.get_watermark_offsets(at, _WAIT_S) == (4, 10)
    assert [one.offset for one in duramen_broker.records(stream)] == list(range(4, 10))
    CONFLUENT.produce(duramen_broker.bootstrap_servers, stream, [Record(bytes(100_000)) for _ in range(30)])
    low, high = consumer.get_watermark_offsets(at, _WAIT_S)
    consumer.close()
    assert 10 < low < high == 40
    with duramen.connect(duramen_broker.http_url) as client:
        [partition] = client.streams.describe(stream).partitions
        assert partition.bytes <= 1 << 20
        assert (partition.end_offset, partition.high_watermark) == (40, 40)
        assert [one.offset for one in duramen_broker.records(stream)] == list(range(partition.start_offset, 40))
        client.streams.delete(stream)
    with pytest.raises(errors.StreamNotFound):
        duramen_broker.records(stream)


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_what_a_group_has_read_stays_read_over_a_restart(how: str, duramen_broker: Broker, stream: str) -> None:
    """A consumer that comes back gets what is new, all of it, and never takes a new record for one that it had."""
    address = duramen_broker.bootstrap_servers
    CONFLUENT.produce(address, stream, [Record(b"old")] * 5)
    assert read_on(duramen_broker, stream, 5) == list(range(5))
    if how == "crash":
        duramen_broker.crash()
    duramen_broker.restart()
    assert duramen_broker.records(stream) == []
    places = CONFLUENT.produce(address, stream, [Record(b"new")] * 3)
    assert all(place.offset >= 5 for place in places)
    assert read_on(duramen_broker, stream, 3) == [place.offset for place in places]


def test_everywhere_it_says_that_nothing_survives(duramen_broker: Broker, stream: str) -> None:
    server = duramen_broker.http_url.removeprefix("http://")
    with duramen.connect(server) as client:
        described = client.streams.describe(stream)
    assert (described.durability, described.durability_means) == ("memory", _MEANS)
    said = run("stream", "describe", stream, server=server)
    assert f"Durability  memory: {_MEANS}" in said.out
    with BrokerCluster(duramen_broker.bootstrap_servers, client_id="test", timeout_s=_WAIT_S) as cluster:
        resource = {"resource_type": 2, "resource_name": stream, "configuration_keys": ["durability"]}
        asked = {"resources": [resource], "include_documentation": True}
        [result] = cluster.ask(ApiKey.DESCRIBE_CONFIGS, asked)["results"]
    [config] = result["configs"]
    assert config["value"] == "memory"
    assert "nothing survives a restart" in " ".join(config["documentation"].split())
