"""Subscriptions to the inventory for both clients: long polls for pages of changes."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final, Protocol, TypeVar

import msgspec

from duramen.client.api.arguments import refused, text, whole
from duramen.client.api.http import Program, Question
from duramen.client.api.inventory.requests import query
from duramen.client.api.values import value_of

__all__ = ["AsyncSubscription", "InventoryChange", "Subscription", "TopicNamed"]

_T = TypeVar("_T")
_MOST_CHANGES: Final = 1000
_WAIT_MS: Final = 20_000  # less than a client waits for an answer


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


class TopicNamed(msgspec.Struct, frozen=True):
    """A name and the lasting id of its topic.

    >>> TopicNamed("orders", "00000614-fc2b-6060-2832-c90000000000").name
    'orders'
    """

    name: str
    id: str


class InventoryChange(msgspec.Struct, frozen=True):
    """A change; a subscription continues after it from `position`.

    `kind` is tenant-put, tenant-renamed, tenant-deleted, namespace-put, namespace-moved, namespace-deleted,
    topics-created, topic-moved, topic-deleted, alias-created, alias-deleted or policies. Changes of one topic id come
    in order; changes of several may not.

    `tenant` and `namespace` are the present names, `old` is the previous path. The ids of tenants and namespaces stay
    when these are renamed or moved. A namespace that moves to another tenant is reported to those who follow either.
    With `kept_alias` the previous path of a moved topic is an alias now.

    >>> client.inventory.create_tenants(["watched"])
    CreatedNames(...)
    >>> position = client.inventory.tenant("watched").position
    >>> client.inventory.create_namespaces("watched", ["prod"])
    CreatedNames(...)
    >>> [change.kind for change in client.inventory.subscribe("watched", position=position).poll()]
    ['namespace-put']
    """

    kind: str
    position: str
    tenant: str = ""
    namespace: str = ""
    topics: list[TopicNamed] = []
    old: str = ""
    labels: dict[str, str] | None = None
    policies: dict[str, bool | int | str] | None = None
    tenant_id: int = 0
    namespace_id: int = 0
    subjects: list[str] | None = None
    old_namespace_id: int = 0
    kept_alias: bool = False


class _Followed:
    """The scope and the position of a subscription."""

    def __init__(self, path: str, prefix: str, position: str, account: str) -> None:
        parts = text("path", path).split("/", 2) if path != "" else []
        if not all(parts):
            raise refused("path", path, "TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC")
        self._path = parts + [""] * 3
        self._prefix = text("prefix", prefix)
        self._account = account
        self.position = text("position", position)
        """Where it goes on: behind all that was given out."""
        self._there: deque[InventoryChange] = deque()
        self._behind = self.position  # of what is there
        self._follow = ""  # what the path was when this began, by its id

    def _asked(self, wait_ms: int) -> Program[None]:
        tenant, namespace, topic = self._path[:3] if not self._follow else [""] * 3
        asked = query(
            self._account, tenant=tenant, namespace=namespace, topic=topic, follow=self._follow, prefix=self._prefix,
            position=self._behind, wait_ms=wait_ms, limit=_MOST_CHANGES,
        )  # fmt: skip
        page = value_of((yield Question("GET", f"/v1/changes{asked}")), dict[str, Any])
        self._there += value_of(page.get("changes"), list[InventoryChange])
        self._behind = value_of(page.get("position"), str)
        self._follow = value_of(page.get("follow", ""), str)
        if not self._there:
            self.position = self._behind

    def _polled(self, wait_s: float) -> Program[list[InventoryChange]]:
        wait_ms = whole("wait_s", int(wait_s * 1000), 0, _WAIT_MS)
        if not self._there:
            yield from self._asked(0 if not self._behind else wait_ms)
        found = list(self._there)
        self._there.clear()
        self.position = self._behind
        return found

    def _following(self) -> Program[InventoryChange]:
        while not self._there:
            yield from self._asked(_WAIT_MS if self._behind else 0)
        change = self._there.popleft()
        self.position = change.position if self._there else self._behind
        return change


class Subscription(_Followed):
    """An endless iterator of changes after a position. Made by `client.inventory.subscribe`.

    >>> client.inventory.create_tenants(["sub1"])
    CreatedNames(...)
    >>> changes = client.inventory.subscribe("sub1")
    >>> changes.poll()
    []
    >>> client.inventory.create_namespaces("sub1", ["prod"])
    CreatedNames(...)
    >>> next(changes).namespace
    'prod'
    """

    def __init__(self, run: _Run, path: str, prefix: str, position: str, account: str) -> None:
        super().__init__(path, prefix, position, account)
        self._run = run

    def poll(self, wait_s: float = 0) -> list[InventoryChange]:
        """The available changes; if there are none, those that come within at most 20 seconds.

        >>> client.inventory.subscribe("").poll()
        []
        """
        return self._run(self._polled(wait_s))

    def __iter__(self) -> Iterator[InventoryChange]:
        return self

    def __next__(self) -> InventoryChange:
        return self._run(self._following())


class AsyncSubscription(_Followed):
    """An endless asynchronous iterator of changes after a position. Made by `client.inventory.subscribe`.

    >>> changes = client.inventory.subscribe("")
    >>> await changes.poll()
    []
    """

    def __init__(self, run: _RunAsync, path: str, prefix: str, position: str, account: str) -> None:
        super().__init__(path, prefix, position, account)
        self._run = run

    async def poll(self, wait_s: float = 0) -> list[InventoryChange]:
        """The available changes; if there are none, those that come within at most 20 seconds.

        >>> await client.inventory.subscribe("").poll()
        []
        """
        return await self._run(self._polled(wait_s))

    def __aiter__(self) -> AsyncIterator[InventoryChange]:
        return self

    async def __anext__(self) -> InventoryChange:
        return await self._run(self._following())
