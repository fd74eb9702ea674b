"""Exports: queue spaces and the inventory as of one moment, read in parallel, for example by Spark."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from duramen.base import errors
from duramen.base.errors import DuramenError, RequestInvalid
from duramen.broker.streams import Stream
from duramen.codec.exports import FIRST_SEQUENCES, OS, SYNC
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.coordinators.runtime.exports import EXPORT_MS
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster, on_topic
from duramen.doors.http.spaces import space
from duramen.doors.http.types.exports import (
    DirectoryInfo,
    ExportedNamespace,
    ExportedTenant,
    ExportInfo,
    ExportQuery,
    ExportShard,
    RunsQuery,
    TopicsExportQuery,
)
from duramen.doors.queues.types import MissingShard
from duramen.inventory.exporting import DirectoryExport
from duramen.inventory.ids import TopicKey, topic_id
from duramen.queues.positions import position_text
from duramen.service.authorize import Operation
from duramen.service.exports import inventory_stream
from duramen.service.forwarding.exports import ExportedShard, InventoryRange, RunsRange

__all__ = ["ROUTES"]

_PAGE: Final = "application/vnd.msgpack"
_ID_DIGITS: Final = 26  # of an id as text: all but its sequence


_Found = Sequence[ExportedShard | DuramenError]


async def _opened(call: Call, stream: Stream, query: ExportQuery, *, last: Collection[int] = ()) -> _Found:
    found: _Found = await call_back(
        lambda done: call.forwarding.exports.open(stream, done, last, partial=query.partial)
    )  # fmt: skip
    call.status = 201
    return found


def _info(call: Call, export: str, shards: list[ExportShard], missing: Mapping[int, DuramenError]) -> ExportInfo:
    lost = [MissingShard(shard, str(error)) for shard, error in sorted(missing.items())]
    return ExportInfo(export, call.broker.clock.wall_ms(), EXPORT_MS, shards, lost)


def _missing(found: _Found) -> dict[int, DuramenError]:
    return {shard: one for shard, one in enumerate(found) if isinstance(one, DuramenError)}


def _check_shard(stream: Stream, shard: int) -> None:
    if shard >= len(stream.partitions):
        raise RequestInvalid(f"there is no shard {shard}: there are {len(stream.partitions)}")


async def _read(call: Call, stream: Stream, shard: int, export: str, wanted: RunsRange | InventoryRange) -> bytes:
    _check_shard(stream, shard)
    found: bytes = await call_back(partial(call.forwarding.exports.read, stream, shard, export, wanted))
    return found


def _hash(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise RequestInvalid(f"{text[:80]!r} are no hexadecimal digits, two for each byte") from None


# -- queue spaces -----------------------------------------------------------------------------------


async def _open_space(call: Call, query: ExportQuery) -> ExportInfo:
    found = await _opened(call, space(call), query)
    shards = [
        ExportShard(shard, position_text(one.position), export=one.export)
        for shard, one in enumerate(found) if isinstance(one, ExportedShard)
    ]  # fmt: skip
    return _info(call, str(shards[0].export), shards, _missing(found))


async def _runs(call: Call, query: RunsQuery) -> Response:
    wanted = RunsRange(_hash(query.first), _hash(query.end), _hash(query.after), query.max_bytes)
    page = await _read(call, space(call), query.shard, call.path["export"], wanted)
    return Response(page, 200, media_type=_PAGE)


# -- the inventory ----------------------------------------------------------------------------------


async def _open_inventory(call: Call, query: ExportQuery) -> ExportInfo:
    """The directory is exported last: so it has the namespaces of all exported topics that are not deleted.

    It cannot be left out.
    """
    stream, shards = inventory_stream(call.broker), list[ExportShard]()
    if stream is None:
        call.status = 201
        return _info(call, "", shards, {})
    found = await _opened(call, stream, query, last=[DIRECTORY_SHARD])
    directory = found[DIRECTORY_SHARD]
    if isinstance(directory, DuramenError):
        raise directory
    for shard, one in enumerate(found):
        if isinstance(one, DuramenError):
            continue
        content = await _read(call, stream, shard, one.export, InventoryRange("sequences"))
        ends = msgspec.msgpack.decode(content, type=dict[str, int])
        ids = str(topic_id(stream.id, TopicKey(shard, 0)))[:_ID_DIGITS]
        others, position = (FIRST_SEQUENCES[OS], ends[OS]), position_text(one.position)
        shards.append(ExportShard(shard, position, ends[SYNC], ids, one.export, os_sequences=others))
    return _info(call, directory.export, shards, _missing(found))


def _made(call: Call) -> Stream:
    stream = inventory_stream(call.broker)
    if stream is None:
        raise errors.ExportExpired("the inventory no longer exists")
    return stream


async def _directory(call: Call) -> DirectoryInfo:
    content = await _read(call, _made(call), DIRECTORY_SHARD, call.path["export"], InventoryRange("directory"))
    found = msgspec.msgpack.decode(content, type=DirectoryExport)
    return DirectoryInfo(
        [
            ExportedTenant(one.id, one.name, one.account, one.created_ms, one.labels, policies)
            for one, policies in zip(found.tenants, found.tenant_policies, strict=True)
        ],
        [
            ExportedNamespace(one.id, one.tenant, one.name, one.created_ms, one.labels, policies)
            for one, policies in zip(found.namespaces, found.namespace_policies, strict=True)
        ],
    )


async def _topics(call: Call, query: TopicsExportQuery) -> Response:
    wanted = InventoryRange("topics", query.first, query.end, query.max_bytes, query.names, query.policies)
    page = await _read(call, _made(call), query.shard, call.path["export"], wanted)
    return Response(page, 200, media_type=_PAGE)


_ASKING: Final = (
    errors.CoordinatorLoading, errors.NotCoordinator, errors.NotLeader, errors.NodeStopping, errors.StateDamaged,
    errors.StorageFailed,
)  # fmt: skip
_READING: Final = (errors.ExportExpired, errors.StateDamaged, errors.StorageFailed)
_SHOWN: Final = on_cluster(Operation.DESCRIBE)

ROUTES = (
    HttpRoute(
        "POST", "/v1/spaces/{name}/exports", _open_space, on_topic(Operation.READ),
        "Start an export: all queues of a space as they are now, readable page by page",
        (errors.QueueSpaceNotFound, *_ASKING), (201,),
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}/exports/{export}/runs", _runs, on_topic(Operation.READ),
        "A page of the entries of a shard", (errors.QueueSpaceNotFound, errors.NotCoordinator, *_READING),
    ),
    HttpRoute(
        "POST", "/v1/inventory/exports", _open_inventory, _SHOWN,
        "Start an export: all topics as they are now, readable page by page", _ASKING, (201,),
    ),
    HttpRoute(
        "GET", "/v1/inventory/exports/{export}/directory", _directory, _SHOWN,
        "All tenants and namespaces of an export", (errors.NotCoordinator, *_READING),
    ),
    HttpRoute(
        "GET", "/v1/inventory/exports/{export}/topics", _topics, _SHOWN,
        "One page of the topics of a shard", (errors.NotCoordinator, *_READING),
    ),
)  # fmt: skip
