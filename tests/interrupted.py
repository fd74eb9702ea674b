"""An idempotent producer with batches in flight while nodes are killed."""

from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from tests.clients import CONFLUENT

__all__ = ["produce_interrupted"]

_COUNT = 3000
_INTERRUPTED_AT = (500, 1500, 2500)
_WAIT_S = 120


def produce_interrupted(
    bootstrap_servers: str, topics: Sequence[str], interrupt: Callable[[int, Callable[[], bool]], object]
) -> None:
    """Send numbers to all topics in small batches: each topic has each of them once, in order.

    `interrupt` is called three times with batches in flight, with the number of the call, from 1 on, and a function
    that lets the producer go on: it returns whether almost all is acknowledged.
    """
    options = {"linger.ms": 0, "batch.num.messages": 3, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, **options})
    failed = list[object]()

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    def caught_up() -> bool:
        producer.poll(0.1)
        return len(producer) < len(topics)

    for number in range(_COUNT):
        for topic in topics:
            producer.produce(topic, b"%d" % number, on_delivery=delivered)
        producer.poll(0)
        if number in _INTERRUPTED_AT:
            interrupt(1 + _INTERRUPTED_AT.index(number), caught_up)
    assert producer.flush(_WAIT_S) == 0
    assert not failed
    for topic in topics:
        reads = CONFLUENT.consume(bootstrap_servers, topic, 1, _COUNT)
        assert [read.value for read in reads] == [b"%d" % number for number in range(_COUNT)]
