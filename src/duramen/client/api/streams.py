"""Streams over HTTP for both clients: create, change, delete, describe as their leaders report them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from duramen.base.errors import ServerUnreachable, StreamNotFound
from duramen.client.api.arguments import INT32_MAX, checked_config, checked_names, text, whole
from duramen.client.api.http import Config, Program, Question, doors, listed
from duramen.client.api.values import StreamInfo, value_of
from duramen.client.http import path_of
from duramen.client.leader_reports import Stream, leaders_elsewhere, with_leaders

__all__ = ["add_partitions", "alter_stream", "create_stream", "delete_stream", "describe_stream", "list_streams"]


def list_streams(prefix: str) -> Program[list[StreamInfo]]:
    """The streams with the name `prefix`."""
    query = {"prefix": prefix} if text("prefix", prefix) else {}
    found = yield from _led((yield from listed("streams", **query)), lambda door: listed("streams", door, **query))
    return [info for info in value_of(found, list[StreamInfo]) if info.name.startswith(prefix)]


def create_stream(
    name: str, partitions: int | None, replication_factor: int | None, subjects: Sequence[str], config: Config | None
) -> Program[StreamInfo]:
    """Create a stream unless it exists."""
    body: dict[str, object] = {
        "name": text("name", name),
        "subjects": checked_names("subjects", subjects),
        "config": checked_config("config", config, may_be_none=False),
    }
    if partitions is not None:
        body["partitions"] = whole("partitions", partitions, -INT32_MAX, INT32_MAX)
    if replication_factor is not None:
        body["replication_factor"] = whole("replication_factor", replication_factor, -INT32_MAX, INT32_MAX)
    return value_of((yield Question("POST", "/v1/streams", body)), StreamInfo)


def describe_stream(name: str) -> Program[StreamInfo]:
    """A stream."""
    text("name", name)
    found = yield from _led((yield from _described(name)), lambda door: _described(name, door))
    return value_of(found[0], StreamInfo)


def _described(name: str, door: str = "") -> Program[list[Stream]]:
    """The stream as one node describes it."""
    return [value_of((yield Question("GET", path_of("streams", name), server=door)), Stream)]


def _led(streams: list[Stream], ask: Callable[[str], Program[list[Stream]]]) -> Program[list[Stream]]:
    """The streams as their leaders describe them, as far as these respond."""
    elsewhere = leaders_elsewhere(streams)
    if not elsewhere:
        return streams
    said: list[Stream] = []
    for door in (yield from doors(elsewhere)):
        with suppress(ServerUnreachable, StreamNotFound):
            said += yield from ask(door)
    return with_leaders(streams, said)


def alter_stream(name: str, config: Mapping[str, str | int | float | bool | None] | None) -> Program[StreamInfo]:
    """Change configs; returns the stream."""
    return _changed(text("name", name), {"config": checked_config("config", config, may_be_none=True)})


def add_partitions(name: str, partitions: int) -> Program[StreamInfo]:
    """Set a larger number of partitions; returns the stream."""
    return _changed(text("name", name), {"partitions": whole("partitions", partitions, -INT32_MAX, INT32_MAX)})


def _changed(name: str, change: Mapping[str, object]) -> Program[StreamInfo]:
    return value_of((yield Question("PATCH", path_of("streams", name), change)), StreamInfo)


def delete_stream(name: str) -> Program[None]:
    """Remove a stream."""
    yield Question("DELETE", path_of("streams", text("name", name)))
