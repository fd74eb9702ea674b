"""Subscriptions to changes of the inventory, as long polls and as server-sent events."""

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.responses import Response, StreamingResponse

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.coordinators.inventory.feed import ChangePage
from duramen.doors.http.completions import call_back, unless_gone
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster
from duramen.doors.inventory.changes import poll, scope_of
from duramen.doors.inventory.types import ChangesInfo, ChangesQuery, changes_info
from duramen.doors.problems import problem_of
from duramen.inventory.feed import FeedScope
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_EVENTS: Final = "text/event-stream"
_QUIET_MS: Final = 15_000  # after which followers get the present position


async def _changes(call: Call, query: ChangesQuery) -> ChangesInfo | Response:
    scope = scope_of(call.broker, query)
    if _EVENTS in call.request.headers.get("accept", ""):
        position = call.request.headers.get("last-event-id") or query.position
        # It is followed through renames.
        fixed: FeedScope = await call_back(lambda done: call.broker.inventory.read(scope, done))
        first = await poll(call.broker, call.node.polls, lambda: fixed, position, query.limit, 0, by_id=True)
        return StreamingResponse(_events(call, fixed, query.limit, first), media_type=_EVENTS)
    waiting = poll(
        call.broker, call.node.polls, scope, query.position, query.limit, query.wait_ms, by_id=bool(query.follow)
    )
    page = await unless_gone(call.request, waiting)
    return changes_info(page)


async def _events(call: Call, scope: FeedScope, limit: int, page: ChangePage) -> AsyncIterator[bytes]:
    """Changes as events: the id of each is the position behind it, which a client that comes again sends back."""
    try:
        while True:
            for change in changes_info(page).changes:
                yield _event(change.kind, change.position, msgspec.json.encode(change))
            yield _event("position", page.position, msgspec.json.encode({"position": page.position}))
            page = await poll(call.broker, call.node.polls, lambda: scope, page.position, limit, _QUIET_MS, by_id=True)
    except DuramenError as error:
        yield _event("error", "", msgspec.json.encode(problem_of(error, call.request.url.path)))


def _event(kind: str, position: str, data: bytes) -> bytes:
    identity = f"id: {position}\n" if position else ""
    return f"event: {kind}\n{identity}data: ".encode() + data + b"\n\n"


ROUTES = (
    HttpRoute(
        "GET", "/v1/changes", _changes, on_cluster(Operation.DESCRIBE),
        "Changes of the inventory after a position, as a long poll or as server-sent events",
        (
            errors.CoordinatorLoading, errors.NotCoordinator, errors.TenantNotFound, errors.NamespaceNotFound,
            errors.TopicNotFound, errors.TopicAliasDangling, errors.InventoryPositionLost, errors.NodeBusy,
            errors.NodeStopping, errors.StorageFailed, errors.LogDamaged, errors.RequestInvalid,
        ),
        formats=(_EVENTS,),
    ),
)  # fmt: skip
