"""The formation of a consumer group: unmodified clients that join at the same time."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.contenders import Contender

__all__ = ["gather"]

_HEARTBEAT_MS: Final = 100  # what a member learns by its heartbeat it learns soon: measured is the broker
_PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.001


def gather(contender: Contender, members: int) -> float:
    """Seconds from the first of `members` new members to the last that has its one of as many partitions.

    Raises RequestInvalid or RequestTimedOut.
    """
    held: dict[int, list[TopicPartition]] = {}
    options = {
        "bootstrap.servers": contender.records, "group.id": f"bench-{contender.topic}", "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": _HEARTBEAT_MS, "enable.auto.commit": False,
    }  # fmt: skip
    consumers = [Consumer(options) for _ in range(members)]
    try:
        began_s = time.monotonic()
        for number, consumer in enumerate(consumers):
            consumer.subscribe([contender.stream], on_assign=partial(_assigned, held, number))
        while not _is_whole(held, members):
            for consumer in consumers:
                consumer.poll(0)
            if time.monotonic() - began_s > _PATIENCE_S:
                raise RequestTimedOut(f"{len(held)} of {members} members have partitions at {contender.name}")
            time.sleep(_PAUSE_S)
        return time.monotonic() - began_s
    except KafkaException as error:
        raise RequestInvalid(f"a group at {contender.name}: {error}") from None
    finally:
        # All at once: each that goes has those rebalance that are left, and these wait for one another.
        with ThreadPoolExecutor(members) as closing:
            list(closing.map(Consumer.close, consumers))


def _assigned(held: dict[int, list[TopicPartition]], number: int, _: Consumer, found: list[TopicPartition]) -> None:
    held[number] = found


def _is_whole(held: dict[int, list[TopicPartition]], members: int) -> bool:
    if len(held) < members or any(len(partitions) != 1 for partitions in held.values()):
        return False
    return len({partitions[0].partition for partitions in held.values()}) == members
