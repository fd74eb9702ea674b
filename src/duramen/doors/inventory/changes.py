"""Requests to follow the inventory, and their responses, shared by the doors."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NamespaceNotFound,
    NodeBusy,
    NotCoordinator,
    RequestInvalid,
    TenantNotFound,
    TopicNotFound,
)
from duramen.coordinators.inventory.feed import ChangePage
from duramen.inventory.feed import FeedScope
from duramen.service.broker import Broker

__all__ = ["Followed", "poll", "scope_of"]

_MOST_POLLS: Final = 1000


class Followed(Protocol):
    """An entity of the inventory, or a prefix of names in a namespace."""

    account: str
    tenant: str
    namespace: str
    topic: str
    prefix: str
    follow: str


def scope_of(broker: Broker, wanted: Followed) -> Callable[[], FeedScope]:
    """The scope of a subscription. Raises RequestInvalid if a part of its path is missing."""
    account = wanted.account or broker.settings.text("inventory.account")
    given = (wanted.tenant, wanted.namespace, wanted.topic)
    path = [part for part in given if part]
    if wanted.follow:
        if path:
            raise RequestInvalid("`follow` stands in place of tenant, namespace and topic: give one or the other")
        if wanted.prefix and wanted.follow.count(".") != 1:
            raise RequestInvalid("a prefix applies to names in a namespace: give `follow` of a namespace")
        return lambda: broker.inventory.followed(account, wanted.follow, wanted.prefix)
    if any(given[len(path) :]):
        raise RequestInvalid("a namespace is given with its tenant, and a topic with both")
    if wanted.prefix and len(path) != 2:
        raise RequestInvalid("a prefix applies to names in a namespace: give tenant and namespace, and no topic")
    return lambda: broker.inventory.scope(account, path, wanted.prefix)


async def poll(
    broker: Broker, polls: set[asyncio.Future[Any]], scope: Callable[[], FeedScope], position: str, limit: int,
    wait_ms: int, *, by_id: bool = False,
) -> ChangePage:  # fmt: skip
    """A page of changes; `polls` are the door's waiting polls. Raises NodeBusy, or the error of the read.

    `by_id`: the scope also resolves after its entity was deleted; once there are no more changes, that is an error.
    """
    if wait_ms and len(polls) >= _MOST_POLLS:
        raise NodeBusy(f"{_MOST_POLLS} requests already wait for changes: retry later, or with wait_ms=0")
    ask = partial(_page, broker, polls, scope, limit)
    if by_id and wait_ms:
        page = await _followed(broker, ask, await ask(position, 0))  # without a wait for what is gone
        if page.changes:
            return page
        position = page.position
    page = await ask(position, wait_ms)
    return await _followed(broker, ask, page) if by_id else page


async def _page(
    broker: Broker, polls: set[asyncio.Future[Any]], scope: Callable[[], FeedScope], limit: int, position: str,
    wait_ms: int,
) -> ChangePage:  # fmt: skip
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    polls.add(future)
    cancel = broker.inventory.feed.poll(scope, position, limit, wait_ms, partial(_set, future))
    try:
        page: ChangePage = await _result(future)
    finally:
        polls.discard(future)
        cancel()
    return page


async def _followed(
    broker: Broker, ask: Callable[[str, int], Coroutine[Any, Any, ChangePage]], page: ChangePage
) -> ChangePage:  # fmt: skip
    """The page, unless it is empty and its entity is gone; the last changes may have come after the page."""
    if page.changes:
        return page
    try:
        await _check_followed(broker, page.scope)
    except (TenantNotFound, NamespaceNotFound, TopicNotFound):
        last = await ask(page.position, 0)
        if not last.changes:
            raise
        return last
    except (CoordinatorLoading, NotCoordinator):
        pass  # whether it is gone is unknown at present: the next page is checked too
    return page


async def _check_followed(broker: Broker, scope: FeedScope) -> None:
    """Raise NamespaceNotFound or the like if the entity was deleted."""
    checked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    broker.inventory.read(partial(broker.inventory.check_followed, scope), partial(_set, checked))
    await _result(checked)


def _set(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


async def _result(future: asyncio.Future[Any]) -> Any:
    found = await future
    if isinstance(found, DuramenError):
        raise found
    return found
