"""Waits until the answering node has a record, as leader or as follower of the partition."""

import asyncio
from typing import Final

from duramen.base import errors
from duramen.base.errors import NodeBusy, OffsetOutOfRange, RecordCut, RequestInvalid
from duramen.base.ids import Position
from duramen.broker.partition import Partition
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.types.records import ReplicatedInfo, ReplicatedQuery
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.service.authorize import Operation
from duramen.service.broker import Broker

__all__ = ["ROUTES"]

_MOST_WAITING: Final = 25  # a quarter of the connections


def _number(call: Call) -> int:
    text = call.path["partition"]
    if not (text.isascii() and text.isdecimal() and len(text) < 11):
        raise RequestInvalid(f"a partition is a number, not {text[:40]}")
    return int(text)


async def _replicated(call: Call, query: ReplicatedQuery) -> ReplicatedInfo:
    waits = call.node.waits
    if query.max_wait_ms and len(waits) >= _MOST_WAITING:
        raise NodeBusy(f"{_MOST_WAITING} requests already wait for records: retry later, or with max_wait_ms=0")
    broker = call.broker
    partition = call.topic.partition(_number(call))
    outcome = await unless_gone(call.request, _outcome(broker, partition, query, waits))
    where = f"partition {partition.index} of {partition.stream.name}"
    if outcome is ReplicationWaitOutcome.CUT:
        raise RecordCut(
            f"the record at {query.offset} of {where} of epoch {query.epoch} was replaced by records of a later leader"
        )
    if outcome is ReplicationWaitOutcome.DELETED:
        raise OffsetOutOfRange(
            f"offset {query.offset} of {where} is deleted: it begins at {partition.log.start_offset}"
        )
    found = outcome is ReplicationWaitOutcome.REACHED
    epoch = partition.log.takeovers.epoch_at(query.offset) if found else None
    return ReplicatedInfo(broker.node_id, found, query.offset, epoch)


async def _outcome(
    broker: Broker, partition: Partition, query: ReplicatedQuery, waits: "set[asyncio.Future[ReplicationWaitOutcome]]"
) -> ReplicationWaitOutcome:
    future: asyncio.Future[ReplicationWaitOutcome] = asyncio.get_running_loop().create_future()

    def done(outcome: ReplicationWaitOutcome) -> None:
        if not future.done():
            future.set_result(outcome)

    waits.add(future)
    try:
        broker.wait_replicated(partition, Position(query.epoch, query.offset), query.max_wait_ms, done)
        return await future
    finally:
        waits.discard(future)


ROUTES = (
    HttpRoute(
        "GET", "/v1/streams/{name}/partitions/{partition}/replicated", _replicated, on_topic(Operation.DESCRIBE),
        "Whether this node has a record that every later leader will have too, waiting up to `max_wait_ms` for it",
        (
            errors.StreamNotFound, errors.NotLeader, errors.RecordCut, errors.OffsetOutOfRange, errors.NodeBusy,
            errors.NodeStopping, errors.StorageFailed, errors.LogDamaged,
        ),
    ),
)  # fmt: skip
