"""Queue spaces over HTTP, for both clients. Pure except for the classes with a client."""

from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

import msgspec

from duramen.client.api.arguments import checked_config, text, whole
from duramen.client.api.http import Config, Program, Question, listed
from duramen.client.api.values import value_of
from duramen.client.http import path_of

__all__ = ["AsyncSpaces", "SpaceInfo", "Spaces"]

_T = TypeVar("_T")

_SPACES: Final = "spaces"


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


def _path(space: str) -> str:
    return path_of(_SPACES, text("space", space))


class SpaceInfo(msgspec.Struct, frozen=True):
    """A queue space: how many shards it has, the bytes of its log, and its configs.

    >>> client.spaces.create("sizes", shards=2).shards
    2
    """

    name: str
    shards: int
    created_at_ms: int
    bytes: int
    config: dict[str, str]
    created: bool = False


def create_space(name: str, shards: int, config: Config | None) -> Program[SpaceInfo]:
    """Create a queue space unless it exists."""
    body: dict[str, object] = {
        "name": text("name", name), "shards": whole("shards", shards, 1, 1000),
        "config": checked_config("config", config, may_be_none=False),
    }  # fmt: skip
    return value_of((yield Question("POST", f"/v1/{_SPACES}", body)), SpaceInfo)


def describe_space(name: str) -> Program[SpaceInfo]:
    """A queue space."""
    return value_of((yield Question("GET", _path(name))), SpaceInfo)


def delete_space(name: str) -> Program[None]:
    """Remove a queue space."""
    yield Question("DELETE", _path(name))


def list_spaces(prefix: str) -> Program[list[SpaceInfo]]:
    """The queue spaces whose names begin with `prefix`."""
    query = {"prefix": prefix} if text("prefix", prefix) else {}
    return value_of((yield from listed(_SPACES, **query)), list[SpaceInfo])


class Spaces:
    """The queue spaces of a node: `client.spaces`.

    >>> client.spaces.create("inboxes", shards=4)
    SpaceInfo(...)
    >>> [space.name for space in client.spaces.list(prefix="inb")]
    ['inboxes']
    """

    def __init__(self, run: _Run) -> None:
        self._run = run

    def create(self, name: str, *, shards: int = 16, config: Config | None = None) -> SpaceInfo:
        """Create a queue space; an existing one with the same definition is kept. Its number of shards cannot change.

        Raises StreamDiffers, StreamExists, NameInvalid, ConfigInvalid, PartitionsInvalid …

        >>> client.spaces.create("alerts").created, client.spaces.create("alerts").created
        (True, False)
        """
        return self._run(create_space(name, shards, config))

    def describe(self, name: str) -> SpaceInfo:
        """A queue space. Raises QueueSpaceNotFound.

        >>> client.spaces.describe("nobody-made-this")
        Traceback (most recent call last):
        duramen.base.errors.QueueSpaceNotFound: there is no queue space nobody-made-this
        """
        return self._run(describe_space(name))

    def delete(self, name: str) -> None:
        """Delete a queue space with all queues in it. Raises QueueSpaceNotFound.

        >>> client.spaces.create("drafts")
        SpaceInfo(...)
        >>> client.spaces.delete("drafts")
        """
        self._run(delete_space(name))

    def list(self, *, prefix: str = "") -> list[SpaceInfo]:
        """All queue spaces, or those with the name `prefix`, sorted by name.

        >>> client.spaces.list(prefix="there-is-none-like-this")
        []
        """
        return self._run(list_spaces(prefix))


class AsyncSpaces:
    """The queue spaces of a node: `client.spaces`; more in `duramen.client.api.queues.spaces.Spaces`.

    >>> [space.name for space in await client.spaces.list(prefix="there-is-none-like-this")]
    []
    """

    def __init__(self, run: _RunAsync) -> None:
        self._run = run

    async def create(self, name: str, *, shards: int = 16, config: Config | None = None) -> SpaceInfo:
        """Create a queue space; an existing one with the same definition is kept. Its number of shards cannot change.

        >>> (await client.spaces.create("aio-alerts", shards=2)).shards
        2
        """
        return await self._run(create_space(name, shards, config))

    async def describe(self, name: str) -> SpaceInfo:
        """A queue space. Raises QueueSpaceNotFound.

        >>> await client.spaces.describe("nobody-made-this")
        Traceback (most recent call last):
        duramen.base.errors.QueueSpaceNotFound: there is no queue space nobody-made-this
        """
        return await self._run(describe_space(name))

    async def delete(self, name: str) -> None:
        """Delete a queue space with all queues in it. Raises QueueSpaceNotFound.

        >>> await client.spaces.create("aio-drafts")
        SpaceInfo(...)
        >>> await client.spaces.delete("aio-drafts")
        """
        await self._run(delete_space(name))

    async def list(self, *, prefix: str = "") -> list[SpaceInfo]:
        """All queue spaces, or those with the name `prefix`, sorted by name.

        >>> await client.spaces.list(prefix="there-is-none-like-this")
        []
        """
        return await self._run(list_spaces(prefix))
