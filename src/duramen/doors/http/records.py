"""Records for people with curl: stored and read as JSON."""

from collections.abc import Callable
from functools import partial

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.broker.partition import LATEST, Partition
from duramen.doors.completion import completion
from duramen.doors.http.producing import largest_body_bytes, produce
from duramen.doors.http.routes import Call, Route
from duramen.doors.http.types import (
    Deleted,
    Deletions,
    DeletionWish,
    RecordPage,
    RecordPlaces,
    RecordsQuery,
    RecordWishes,
)
from duramen.doors.http.waiting import unless_gone

__all__ = ["ROUTES"]


def _limit(call: Call) -> int:
    return largest_body_bytes(call.broker.streams.get(call.path["name"]))


async def _produce(call: Call, body: RecordWishes) -> RecordPlaces:
    return await produce(call.broker, call.path["name"], body.records)


async def _read(call: Call, query: RecordsQuery) -> RecordPage:
    return await unless_gone(call.request, call.node.reading.read(call.broker, call.path["name"], query))


def _begin(partition: Partition, before: int, done: Callable[[DuramenError | None], None]) -> None:
    partition.delete_before(before, lambda _, error: done(error))


async def _delete(call: Call, body: DeletionWish) -> Deletions:
    stream = call.broker.streams.get(call.path["name"])
    partitions = list(stream.partitions) if body.partition is None else [stream.partition(body.partition)]
    before = LATEST if body.before is None else body.before
    for partition in partitions:
        partition.check_deletion(before)  # before the first is changed
    for partition in partitions:
        await completion(partial(_begin, partition, before))
    return Deletions([Deleted(partition.index, partition.log.start_offset) for partition in partitions])


ROUTES = (
    Route(
        "POST", "/v1/streams/{name}/records", _produce,
        "Store records; answered with their places once they are acknowledged as with acks=all",
        (
            errors.StreamNotFound, errors.BatchInvalid, errors.BatchTooLarge, errors.TimestampInvalid,
            errors.NodeStopping, errors.StorageFull, errors.StorageFailed,
        ),
        body_limit_bytes=_limit,
    ),
    Route(
        "GET", "/v1/streams/{name}/records", _read,
        "Read records of a partition, at once or as soon as there are some",
        (
            errors.StreamNotFound, errors.OffsetOutOfRange, errors.LogDamaged, errors.BatchCorrupt,
            errors.StorageFailed,
        ),
    ),
    Route(
        "POST", "/v1/streams/{name}/records/delete", _delete,
        "Delete the oldest records, up to an offset; answered once that is durable",
        (
            errors.StreamNotFound, errors.OffsetOutOfRange, errors.DeletionRefused, errors.NodeStopping,
            errors.StorageFull, errors.StorageFailed,
        ),
    ),
)  # fmt: skip
