"""Streams: list, create, show, change, delete."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from duramen.base import errors
from duramen.base.errors import RequestInvalid
from duramen.base.settings import config_text
from duramen.broker.gaps import GapsOf
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.doors.completion import completion
from duramen.doors.http.listing import names_listed, streams_page
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic, topics_named
from duramen.doors.http.types.streams import (
    DamagedRange,
    FloorInfo,
    GapInfo,
    LateRecords,
    NatsGaps,
    PartitionInfo,
    StreamChange,
    StreamInfo,
    StreamList,
    StreamRequest,
    StreamsQuery,
    ViewInfo,
)
from duramen.metadata.decisions import Definition, wide_subjects
from duramen.metadata.partitions import PartitionId
from duramen.service.admission import AdmissionRules, Refuses
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.broker import Broker
from duramen.storage.log.floors import floors_of
from duramen.storage.log.log import Log
from duramen.storage.planning.floors import Floor

__all__ = ["ROUTES"]

_AT_ONCE: Final = 500  # partitions that are described before others get their turn: a few milliseconds

_MEANS: Final = {
    "sync": "acknowledged records are on disk, covered by an fdatasync that began after they were written",
    "os": "acknowledged records are in the operating system's cache: a crash of the process loses none, a power "
    "failure may lose those not synced yet",
    "memory": "records are in bounded memory only; nothing survives a restart",
}

_CREATE_IN_CLUSTER: Final = Access(Operation.CREATE, ResourceType.CLUSTER)

_LATE: Final = "deleted by retention soon after they were written: their timestamps were older than retention.ms"


def _config_texts(config: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    return {name: config_text(value) for name, value in config.items()}


def _describe(stream: Stream, broker: Broker) -> StreamInfo:
    durability = stream.config.text("durability")
    return StreamInfo(
        stream.name,
        str(stream.id),
        stream.internal,
        stream.state.created_at_ms,
        list(stream.subjects),
        durability,
        _MEANS[durability],
        dict(stream.state.config),
        [_partition(partition, stream, broker) for partition in stream.partitions],
        _gaps(broker.gaps.of(stream)) if stream.subjects else None,
    )


def _partition(partition: Partition, stream: Stream, broker: Broker) -> PartitionInfo:
    log, state = partition.log, broker.membership.partition(PartitionId(stream.id, partition.index))
    return PartitionInfo(
        partition.index,
        state.leader,
        state.leader == broker.node_id,
        list(state.replicas),
        list(state.isr),
        partition.leader_epoch,
        log.start_offset,
        log.high_watermark,
        log.end_offset,
        log.size_bytes(),
        sum(1 for segment in log.segments if segment.size),
        _damaged(log),
        _late(log),
        [_floor(floor) for floor in floors_of(log) if floor.offset < log.high_watermark],
        _view(broker, stream, partition),
    )


def _view(broker: Broker, stream: Stream, partition: Partition) -> ViewInfo | None:
    view = broker.views.find(partition, stream)
    if view is None:
        return None
    facts, bounds = view.facts, view.bounds
    return ViewInfo(
        facts.position, view.lag, bounds.s0, bounds.horizon, facts.keys,
        facts.records, facts.superseded, facts.memory_bytes, round(facts.bytes_per_key, 1), facts.problem,
        facts.file_bytes,
    )  # fmt: skip


def _floor(floor: Floor) -> FloorInfo:
    holds: list[Literal["retention", "compaction"]] = []
    if floor.retention:
        holds.append("retention")
    if floor.compaction:
        holds.append("compaction")
    return FloorInfo(floor.name, floor.offset, holds, floor.multiple or None)


def _damaged(log: Log) -> list[DamagedRange]:
    lost = [DamagedRange(first, last, None, None, None, "lost at a start") for first, last in log.damage]
    return lost + [
        DamagedRange(
            damage.first_offset, damage.last_offset if damage.last_offset >= 0 else None,
            f"{segment.path}.log", damage.start, damage.end, damage.cause.words,
        )
        for segment in log.segments
        for damage in segment.damage
    ]  # fmt: skip


def _late(log: Log) -> LateRecords | None:
    records, newest_ms = log.late
    return LateRecords(records, newest_ms, _LATE) if records else None


def _gaps(gaps: GapsOf) -> NatsGaps:
    recent = [GapInfo(*gap) for gap in gaps.recent]
    if gaps.open is not None:
        recent.append(GapInfo(gaps.open.start_ms, None, gaps.open.cause))
    return NatsGaps(gaps.gaps, gaps.total_ms, recent)


def _warnings_for(stream: Stream) -> list[str]:
    # Warnings for the creator of this stream.
    wide = wide_subjects(stream.subjects)
    if not wide or stream.config.text("nats.ack") == "never":
        return []
    return [
        f"the binding {subject} matches requests to other services too: Duramen answers on their reply subjects,"
        " unless nats.ack=never" for subject in wide
    ]  # fmt: skip


async def _list(call: Call, query: StreamsQuery) -> StreamList:
    page, after = streams_page(call, query.prefix, query.after, query.limit)
    described: list[StreamInfo] = []
    partitions = 0
    for stream in page:
        if stream.deleted:
            continue  # meanwhile
        described.append(_describe(stream, call.broker))
        partitions += len(stream.partitions)
        if partitions >= _AT_ONCE:
            partitions = 0
            await asyncio.sleep(0)
    return StreamList(described, after)


async def _show(call: Call) -> StreamInfo:
    return _describe(call.topic, call.broker)


def _created(call: Call) -> Sequence[str]:
    return (call.body.name,)


async def _create(call: Call, body: StreamRequest) -> StreamInfo:
    broker = call.broker
    partitions = body.partitions
    if partitions is None:
        partitions = 1 if body.subjects else broker.settings.integer("num.partitions")
    existed = call.admitted.topics.find(body.name) is not None
    definition = Definition(body.name, partitions, _config_texts(body.config), tuple(body.subjects))
    replicas = body.replication_factor
    await completion(lambda done: broker.create_stream(definition, done, idempotent=True, replication_factor=replicas))
    stream = await call.find(body.name)
    info = _describe(stream, broker)
    has = len(info.partitions[0].replicas)
    if existed and replicas not in (None, has):
        raise errors.StreamDiffers(
            f"stream {body.name} exists with the replication factor {has}, not {replicas}:"
            " use `duramen cluster reassign` to change the replicas"
        )
    info.created = not existed
    info.warnings = _warnings_for(stream)
    call.status = 200 if existed else 201
    return info


def _named(call: Call) -> Sequence[str]:
    return (call.path["name"],)


def _configured(call: Call) -> Sequence[str]:
    return _named(call) if call.body.config else ()


def _grown(call: Call) -> Sequence[str]:
    return () if call.body.partitions is None else _named(call)


_CHANGING: Final = AdmissionRules(
    topics_named(Operation.ALTER, _grown), topics_named(Operation.ALTER_CONFIGS, _configured), names=_named
)


async def _change(call: Call, body: StreamChange) -> StreamInfo:
    broker, stream = call.broker, call.topic
    name = stream.name
    texts = {key: None if value is None else config_text(value) for key, value in body.config.items()}
    wanted = body.partitions if body.partitions != len(stream.partitions) else None
    # Both are checked before either is done: a refused request changes nothing.
    if wanted is not None:
        broker.check_partitions(name, wanted)
    if texts:
        await completion(lambda done: broker.configure_stream(name, texts, done))
    if wanted is not None:
        await completion(lambda done: broker.add_partitions(name, wanted, done))
    return _describe(await call.find(name), broker)


async def _delete(call: Call) -> None:
    broker = call.broker
    stream = call.topic
    if stream.internal:
        raise RequestInvalid(f"{stream.name} is the broker's own")
    await completion(lambda done: broker.delete_stream(stream.name, done))


_WRITING: Final = (errors.NodeStopping, errors.StorageFull, errors.StorageFailed)
_DEFINING: Final = (errors.ConfigInvalid, errors.PartitionsInvalid)
_NAMING: Final = (
    errors.NameInvalid,
    errors.NameReserved,
    errors.SubjectInvalid,
    errors.StreamExists,
    errors.StreamDiffers,
)

ROUTES = (
    HttpRoute(
        "GET", "/v1/streams", _list, AdmissionRules(topics_named(Operation.DESCRIBE, names_listed, Refuses.ENTRY)),
        "Streams by name, page by page",
    ),
    HttpRoute(
        "POST", "/v1/streams", _create,
        AdmissionRules(topics_named(Operation.CREATE, _created, Refuses.REQUEST, _CREATE_IN_CLUSTER), names=_created),
        "Create a stream; 200 instead of 201 if it already exists with the same definition",
        (*_NAMING, errors.ReplicationFactorInvalid, *_DEFINING, *_WRITING),
        (201, 200), by_body=True,
    ),
    HttpRoute("GET", "/v1/streams/{name}", _show, on_topic(Operation.DESCRIBE), "One stream", (errors.StreamNotFound,)),
    HttpRoute(
        "PATCH", "/v1/streams/{name}", _change, _CHANGING,
        "Set configs (null resets one to its default), or add partitions",
        (errors.StreamNotFound, errors.QueueShardsFixed, *_DEFINING, *_WRITING), by_body=True,
    ),
    HttpRoute(
        "DELETE", "/v1/streams/{name}", _delete, on_topic(Operation.DELETE), "Delete a stream with all its records",
        (errors.StreamNotFound, errors.RequestInvalid, *_WRITING), (204,),
    ),
)  # fmt: skip
