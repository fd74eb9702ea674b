"""Exports of queue spaces and of the inventory: opened with the present state, and read page by page."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.coordinators.inventory.shard import INVENTORY_STREAM
from duramen.service.broker import Broker
from duramen.service.queues import patiently

__all__ = ["inventory_stream", "open_export", "read_export"]

T = TypeVar("T")


def inventory_stream(broker: Broker) -> Stream | None:
    """The stream that the inventory is kept in; None before the first tenant is made."""
    return broker.streams.find(INVENTORY_STREAM)


def open_export(
    broker: Broker, stream: Stream, done: Callable[[str | DuramenError], None], shards: Sequence[int] | None = None
) -> None:
    """`done` gets the name of an export that has all that was acknowledged in these shards of a stream before.

    None: in all of them. This node leads them.
    """
    partitions = stream.partitions if shards is None else [stream.partition(shard) for shard in shards]
    left, over = len(partitions), False

    def read(answer: object) -> None:
        nonlocal left, over
        left -= 1
        if over:
            return
        if isinstance(answer, DuramenError):
            over = True
            done(answer)
        elif not left:
            over = True
            broker.exports.open(done)

    for partition in partitions:
        ask = partial(
            broker.coordinators.read, stream.name, partition.index, lambda _shard, _rows: None,
            at_least=partition.log.high_watermark,
        )  # fmt: skip
        patiently(broker, ask, read)


def read_export(
    broker: Broker, stream: Stream, shard: int, export: str, job: Callable[[StateRows], T],
    done: Callable[[T | DuramenError], None],
) -> None:  # fmt: skip
    """`done` gets the result of `job` on the rows of a shard, off the event loop. Raises ExportExpired."""
    broker.exports.read(export, stream.partition(shard).log, job, done)
