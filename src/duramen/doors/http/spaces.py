"""Queue spaces: list, create, show, delete."""

from collections.abc import Sequence
from typing import Final

from duramen.base import errors
from duramen.base.catalogue.queues import KIND, QUEUES
from duramen.base.errors import QueueSpaceNotFound, RequestInvalid, StreamNotFound
from duramen.base.settings import config_text
from duramen.broker.streams import Stream
from duramen.doors.completion import completion
from duramen.doors.http.listing import names_listed, streams_page
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic, topics_named
from duramen.doors.http.types.spaces import SpaceInfo, SpaceList, SpaceRequest, SpacesQuery
from duramen.metadata.decisions import Definition
from duramen.service.admission import AdmissionRules, Refuses
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.queues import space_of

__all__ = ["ROUTES", "space"]

_CREATE_IN_CLUSTER: Final = Access(Operation.CREATE, ResourceType.CLUSTER)


def space(call: Call) -> Stream:
    """The queue space in the path. Raises QueueSpaceNotFound."""
    name = call.path["name"]
    try:
        found: Stream | None = call.topic
    except StreamNotFound:
        found = None
    return space_of(found, name)


def _describe(stream: Stream) -> SpaceInfo:
    config = {name: value for name, value in stream.state.config.items() if name != KIND}
    size = sum(partition.log.size_bytes() for partition in stream.partitions)
    return SpaceInfo(stream.name, stream.shards, stream.state.created_at_ms, size, config)


async def _list(call: Call, query: SpacesQuery) -> SpaceList:
    page, after = streams_page(call, query.prefix, query.after, query.limit, lambda one: bool(one.shards))
    return SpaceList([_describe(one) for one in page], after)


async def _show(call: Call) -> SpaceInfo:
    return _describe(space(call))


def _created(call: Call) -> Sequence[str]:
    return (call.body.name,)


async def _create(call: Call, body: SpaceRequest) -> SpaceInfo:
    existed = call.admitted.topics.find(body.name) is not None
    config = {name: config_text(value) for name, value in body.config.items()} | {KIND: QUEUES}
    definition = Definition(body.name, body.shards, config)
    await completion(lambda done: call.broker.create_stream(definition, done, idempotent=True))
    info = _describe(space_of(await call.find(body.name), body.name))
    info.created = not existed
    call.status = 200 if existed else 201
    return info


async def _delete(call: Call) -> None:
    name = space(call).name
    await completion(lambda done: call.broker.delete_stream(name, done))


_WRITING: Final = (errors.NodeStopping, errors.StorageFull, errors.StorageFailed)

ROUTES = (
    HttpRoute(
        "GET", "/v1/spaces", _list, AdmissionRules(topics_named(Operation.DESCRIBE, names_listed, Refuses.ENTRY)),
        "Queue spaces by name, page by page",
    ),
    HttpRoute(
        "POST", "/v1/spaces", _create,
        AdmissionRules(topics_named(Operation.CREATE, _created, Refuses.REQUEST, _CREATE_IN_CLUSTER), names=_created),
        "Create a queue space; 200 instead of 201 if it already exists with the same definition",
        (
            errors.NameInvalid, errors.NameReserved, errors.StreamExists, errors.StreamDiffers, errors.ConfigInvalid,
            errors.PartitionsInvalid, *_WRITING,
        ),
        (201, 200), by_body=True,
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}", _show, on_topic(Operation.DESCRIBE), "One queue space", (QueueSpaceNotFound,),
    ),
    HttpRoute(
        "DELETE", "/v1/spaces/{name}", _delete, on_topic(Operation.DELETE),
        "Delete a queue space with all queues in it", (QueueSpaceNotFound, RequestInvalid, *_WRITING), (204,),
    ),
)  # fmt: skip
