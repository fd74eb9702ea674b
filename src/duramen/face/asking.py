"""The HTTP API as both clients use it: programs that ask and are sent answers, for whichever driver they have. Pure.

A program is a generator that yields questions and is sent the JSON that comes back, or has the error raised that came
instead; what it returns is the result.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode

from duramen.client.http import path_of
from duramen.face.values import (
    GroupDetails,
    GroupInfo,
    NodeInfo,
    OffsetChange,
    StreamInfo,
    value_of,
)

__all__ = [
    "Config",
    "Program",
    "Question",
    "alter_stream",
    "create_stream",
    "delete_group",
    "delete_stream",
    "describe_group",
    "describe_stream",
    "list_groups",
    "list_streams",
    "node",
    "reset_group",
]

_T = TypeVar("_T")

Config: TypeAlias = Mapping[str, str | int | float | bool]
"""Configs of a stream by their dotted names."""


class Question(NamedTuple):
    """What is asked over HTTP, of the node at `server`; empty: of the client's own."""

    method: str
    path: str
    document: Mapping[str, object] | None = None
    server: str = ""


Program: TypeAlias = Generator[Question, Any, _T]


def _listed(collection: str, type_: type[_T], **query: str) -> Program[list[_T]]:
    """Everything in a collection, however many pages it has."""
    found: list[_T] = []
    path = f"/v1/{collection}"
    asked = dict(query)
    while True:
        page = yield Question("GET", f"{path}?{urlencode(asked)}" if asked else path)
        found += [value_of(one, type_) for one in value_of(page, dict[str, Any]).get(collection, ())]
        after = page.get("next")
        if after is None:
            return found
        asked["after"] = after


def node() -> Program[NodeInfo]:
    """The node that answers."""
    return value_of((yield Question("GET", "/v1/node")), NodeInfo)


def list_streams(prefix: str) -> Program[list[StreamInfo]]:
    """The streams whose names begin with `prefix`."""
    query = {"prefix": prefix} if prefix else {}
    found = yield from _listed("streams", StreamInfo, **query)
    return [info for info in found if info.name.startswith(prefix)]


def create_stream(
    name: str, partitions: int | None, subjects: Sequence[str], config: Config | None
) -> Program[StreamInfo]:
    """A stream, made where there is none."""
    wish: dict[str, object] = {"name": name, "subjects": list(subjects), "config": dict(config or {})}
    if partitions is not None:
        wish["partitions"] = partitions
    return value_of((yield Question("POST", "/v1/streams", wish)), StreamInfo)


def describe_stream(name: str) -> Program[StreamInfo]:
    """A stream."""
    return value_of((yield Question("GET", path_of("streams", name))), StreamInfo)


def alter_stream(
    name: str, config: Mapping[str, str | int | float | bool | None] | None, partitions: int | None
) -> Program[StreamInfo]:
    """A stream after it was changed."""
    change: dict[str, object] = {"config": dict(config or {})}
    if partitions is not None:
        change["partitions"] = partitions
    return value_of((yield Question("PATCH", path_of("streams", name), change)), StreamInfo)


def delete_stream(name: str) -> Program[None]:
    """Remove a stream."""
    yield Question("DELETE", path_of("streams", name))


def list_groups() -> Program[list[GroupInfo]]:
    """Every consumer group."""
    return (yield from _listed("groups", GroupInfo))


def describe_group(group: str) -> Program[GroupDetails]:
    """A consumer group."""
    return value_of((yield Question("GET", path_of("groups", group))), GroupDetails)


def reset_group(
    group: str, to: str, streams: Sequence[str] | None, partition: int | None, *, dry_run: bool
) -> Program[list[OffsetChange]]:
    """Set a group's offsets."""
    wish: dict[str, object] = {"to": to, "dry_run": dry_run}
    if streams is not None:
        wish["streams"] = list(streams)
    if partition is not None:
        wish["partition"] = partition
    answer = yield Question("POST", path_of("groups", group) + "/offsets", wish)
    return value_of(value_of(answer, dict[str, Any]).get("offsets"), list[OffsetChange])


def delete_group(group: str) -> Program[None]:
    """Remove a consumer group."""
    yield Question("DELETE", path_of("groups", group))
