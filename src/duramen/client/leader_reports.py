"""Streams as their leaders report them, combined from the HTTP responses of several nodes.

For a partition that another node leads, a node reports its own replica, which may lack records or not exist.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from duramen.base.errors import ServerUnreachable, StreamNotFound
from duramen.client.http import HttpNode

__all__ = ["Stream", "leaders_elsewhere", "led", "with_leaders"]

_OF_THE_LEADER: Final = (
    "start_offset", "high_watermark", "end_offset", "bytes", "segments", "damaged", "late", "floors", "leads",
)  # fmt: skip

Stream = dict[str, Any]
"""A stream as `GET /v1/streams/{name}` tells of it."""


def led(server: HttpNode, ask: Callable[[HttpNode], list[Stream]]) -> list[Stream]:
    """The result of `ask` from a node, with partitions of other leaders from those nodes, as far as they respond."""
    streams = ask(server)
    elsewhere = leaders_elsewhere(streams)
    said: list[Stream] = []
    for other in server.others(elsewhere) if elsewhere else ():
        with suppress(ServerUnreachable, StreamNotFound):
            said += ask(other)
    return with_leaders(streams, said)


def leaders_elsewhere(streams: Iterable[Stream]) -> set[int]:
    """The nodes that have to be asked as well: they lead partitions of these streams."""
    return {
        part["leader"]
        for stream in streams
        for part in stream["partitions"]
        if part.get("leader") is not None and not part.get("leads", True)
    }


def with_leaders(streams: Iterable[Stream], said: Iterable[Stream]) -> list[Stream]:
    """`streams`, with what other nodes have `said` of the partitions that those lead."""
    by_leader: dict[tuple[str, int], Mapping[str, Any]] = {
        (stream["id"], part["partition"]): part for stream in said for part in stream["partitions"] if part.get("leads")
    }
    return [
        {**stream, "partitions": [_filled(stream, part, by_leader) for part in stream["partitions"]]}
        for stream in streams
    ]


def _filled(
    stream: Stream, part: dict[str, Any], by_leader: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[str, Any]:
    found = by_leader.get((stream["id"], part["partition"]))
    return part if found is None else {**part, **{name: found[name] for name in _OF_THE_LEADER if name in found}}
