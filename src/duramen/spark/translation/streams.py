"""The streams with tables, from a node's HTTP door."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from duramen.base.errors import StreamNoTable
from duramen.client.http import HttpNode, path_of
from duramen.client.leader_reports import Stream, led
from duramen.spark.declared import DeclaredTable, declared

__all__ = ["declared_streams", "described"]


def described(server: HttpNode, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The leaders' descriptions of these streams, or of all. Raises StreamNotFound, ServerUnreachable."""
    if not names:
        yield from led(server, lambda node: list(node.listed("/v1/streams", "streams")))
    for name in names:
        yield from led(server, partial(_one, name))


def _one(name: str, server: HttpNode) -> list[Stream]:
    return [server.get(path_of("streams", name))]


def declared_streams(
    server: HttpNode, names: Sequence[str], storage: Mapping[str, str]
) -> dict[str, tuple[DeclaredTable, Mapping[str, Any]]]:
    """The streams with tables, of the given ones or of all, with their leaders' descriptions.

    Raises StreamNotFound, StreamNoTable for a named one, ServerUnreachable, ConfigInvalid.
    """
    found = {}
    for stream in described(server, names):
        table = declared(str(stream["name"]), str(stream["id"]), stream["config"], storage)
        if table is not None:
            found[str(stream["name"])] = table, stream
        elif names:
            raise StreamNoTable(f"stream {stream['name']} is no table")
    return found
