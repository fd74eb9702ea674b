"""Records as JSON, for example for curl: produce and read."""

import asyncio

from duramen.base import errors
from duramen.base.errors import DuramenError, StorageFailed
from duramen.broker.partition import LATEST, Partition
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.produce import largest_body_bytes, produce
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.types.records import (
    Deleted,
    DeletionRequest,
    Deletions,
    ProduceQuery,
    RecordPage,
    RecordPlaces,
    RecordsQuery,
    RecordsRequest,
)
from duramen.service.authorize import Operation
from duramen.service.forwarded_requests import DeleteRecordsResponse as DeletedRecords
from duramen.service.forwarding.forwarding import Forwarding

__all__ = ["ROUTES"]


def _limit(call: Call) -> int:
    return largest_body_bytes(call.topic)


async def _produce(call: Call, query: ProduceQuery, body: RecordsRequest) -> RecordPlaces:
    return await produce(call.broker, call.forwarding, call.topic, body.records, query.timeout_ms)


async def _read(call: Call, query: RecordsQuery) -> RecordPage:
    return await unless_gone(call.request, call.node.reading.read(call.broker, call.forwarding, call.topic, query))


async def _delete_in(forwarding: Forwarding, partition: Partition, before: int) -> Deleted:
    future: asyncio.Future[DeletedRecords | DuramenError | OSError] = asyncio.get_running_loop().create_future()
    forwarding.delete(partition, before, lambda found: None if future.done() else future.set_result(found))
    outcome = await future
    if isinstance(outcome, DeletedRecords):
        return Deleted(partition.index, outcome.start_offset)
    raise outcome if isinstance(outcome, DuramenError) else StorageFailed(f"deleting failed: {outcome}")


async def _delete(call: Call, body: DeletionRequest) -> Deletions:
    stream = call.topic
    partitions = list(stream.partitions) if body.partition is None else [stream.partition(body.partition)]
    before = LATEST if body.before is None else body.before
    for partition in partitions:
        if partition.leads:  # other errors name the partition themselves
            partition.check_deletion(before)  # before the first is changed
    return Deletions([await _delete_in(call.forwarding, partition, before) for partition in partitions])


ROUTES = (
    HttpRoute(
        "POST", "/v1/streams/{name}/records", _produce, on_topic(Operation.WRITE),
        "Produce records; the response has their partitions and offsets once they are acknowledged as with acks=all",
        (
            errors.StreamNotFound, errors.BatchInvalid, errors.BatchTooLarge, errors.TimestampInvalid,
            errors.NodeBusy, errors.NodeStopping, errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend,
            errors.NotLeader, errors.OutcomeUnknown, errors.StorageFull, errors.StorageFailed,
        ),
        body_limit_bytes=_limit,
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/records", _read, on_topic(Operation.READ),
        "Read records of a partition, waiting up to `max_wait_ms` if there are none",
        (
            errors.StreamNotFound, errors.OffsetOutOfRange, errors.LogDamaged, errors.BatchCorrupt, errors.NodeBusy,
            errors.NodeStopping, errors.NotLeader, errors.OffsetNotAvailable, errors.StorageFailed,
        ),
    ),
    HttpRoute(
        "POST", "/v1/streams/{name}/records/delete", _delete, on_topic(Operation.DELETE),
        "Delete the records before an offset; the response comes once the deletion is durable",
        (
            errors.StreamNotFound, errors.OffsetOutOfRange, errors.DeletionRefused, errors.NodeStopping,
            errors.NotLeader, errors.OutcomeUnknown, errors.StorageFull, errors.StorageFailed,
        ),
    ),
)  # fmt: skip
