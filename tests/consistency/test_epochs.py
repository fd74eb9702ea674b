"""A producer whose batch is refused while others are in flight keeps its id and epoch."""

from collections.abc import Callable
from typing import Final

import pytest
from tests.consistency.clients import TOPIC
from tests.consistency.delivered import LIBRARIES, JavaSender, Sender
from tests.consistency.history import Send
from tests.untyped import untyped

from duramen.bench.peers.kafka import fetch_jars
from duramen.testing import Broker

_RECORDS: Final = 6
_DELAY_MS: Final = 100
"""Of answers, so that a client sends the batches behind the refused one before it knows."""


def _epochs(broker: Broker) -> list[tuple[int, int]]:
    """The epoch and the last sequence of each producer that the partition knows."""
    kafka = untyped("kafka")
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        (state,) = admin.describe_producers([kafka.TopicPartition(TOPIC, 0)]).values()
    finally:
        admin.close()
    return [(one.producer_epoch, one.last_sequence) for one in state.active_producers]


def _kept(broker: Broker, sender: type[Sender]) -> None:
    broker.create_stream(TOPIC)
    client = sender(broker.bootstrap_servers, TOPIC)
    assert client.send([Send(0, 0)])[0].delivered
    broker.faults.delay("Produce", _DELAY_MS)
    broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", times=1)
    told = client.send([Send(0, value) for value in range(1, _RECORDS)])
    broker.faults.clear()
    client.close()
    assert "answered with NOT_ENOUGH_REPLICAS" in broker.log
    assert [one.delivered for one in told] == [True] * (_RECORDS - 1)
    assert [one.value for one in broker.records(TOPIC)] == [b"%d" % value for value in range(_RECORDS)]
    assert _epochs(broker) == [(0, _RECORDS - 1)]


def test_a_producer_keeps_its_epoch(duramen_broker_factory: Callable[..., Broker]) -> None:
    _kept(duramen_broker_factory(), LIBRARIES["confluent-kafka"])


@pytest.mark.long
@pytest.mark.parametrize("library", [*LIBRARIES, "java"])
def test_a_producer_of_every_library_keeps_its_epoch(
    duramen_broker_factory: Callable[..., Broker], library: str
) -> None:
    sender = LIBRARIES.get(library, JavaSender)
    if sender is JavaSender:
        JavaSender.jars = fetch_jars()
    _kept(duramen_broker_factory(), sender)
