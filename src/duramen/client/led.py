"""Streams as their leaders have them, put together from what several nodes say over HTTP. Plain.

Of a partition that another node leads a node tells what it has of it itself, which may be less, or nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["Stream", "leaders_elsewhere", "with_leaders"]

_OF_THE_LEADER: Final = ("start_offset", "high_watermark", "end_offset", "bytes", "segments", "damaged", "leads")

Stream = dict[str, Any]
"""A stream as `GET /v1/streams/{name}` tells of it."""


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
    led: dict[tuple[str, int], Mapping[str, Any]] = {
        (stream["id"], part["partition"]): part for stream in said for part in stream["partitions"] if part.get("leads")
    }
    return [{**stream, "partitions": [_led(stream, part, led) for part in stream["partitions"]]} for stream in streams]


def _led(stream: Stream, part: dict[str, Any], led: Mapping[tuple[str, int], Mapping[str, Any]]) -> dict[str, Any]:
    found = led.get((stream["id"], part["partition"]))
    return part if found is None else {**part, **{name: found[name] for name in _OF_THE_LEADER}}
