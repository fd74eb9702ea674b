"""Consecutive transactions of an unmodified client."""

import os
import time
from typing import Final

from confluent_kafka import KafkaException, Producer

from duramen.base.errors import RequestInvalid
from duramen.bench.contenders import Contender

__all__ = ["transact"]

_TIMEOUT_S: Final = 60.0


def transact(contender: Contender, value_bytes: int, records: int, duration_s: float) -> float:
    """Transactions a second, each of so many records, committed for so long. Raises RequestInvalid."""
    producer = Producer(
        {"bootstrap.servers": contender.records, "transactional.id": f"bench-{contender.topic}", "linger.ms": 0}
    )
    value = os.urandom(value_bytes)
    try:
        producer.init_transactions(_TIMEOUT_S)
        _one(producer, contender.topic, value, records)
        committed, began_s = 0, time.monotonic()
        while (took_s := time.monotonic() - began_s) < duration_s or not committed:
            _one(producer, contender.topic, value, records)
            committed += 1
    except KafkaException as error:
        raise RequestInvalid(f"transactions with {contender.name}: {error}") from None
    return committed / took_s


def _one(producer: Producer, topic: str, value: bytes, records: int) -> None:
    producer.begin_transaction()
    producer.produce_batch(topic, [{"value": value}] * records)
    producer.commit_transaction(_TIMEOUT_S)
