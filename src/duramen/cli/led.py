"""Streams as their leaders have them, for commands."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from duramen.base.errors import NotLeader, ServerUnreachable, StreamNotFound
from duramen.cli.server import Server
from duramen.client import http
from duramen.client.led import Stream, leaders_elsewhere, with_leaders

__all__ = ["leader_of", "led"]


def led(server: Server, ask: Callable[[http.Server], list[Stream]]) -> list[Stream]:
    """What `ask` gets from a node, and of partitions that other nodes lead from those, as far as these answer."""
    streams = ask(server)
    elsewhere = leaders_elsewhere(streams)
    said: list[Stream] = []
    for other in server.others(elsewhere) if elsewhere else ():
        with suppress(ServerUnreachable, StreamNotFound):
            said += ask(other)
    return with_leaders(streams, said)


def leader_of(server: Server, part: Mapping[str, Any]) -> http.Server:
    """The node that leads a partition, as `server` tells of it. Raises NotLeader."""
    if part["leads"]:
        return server
    for other in server.others({part["leader"]}):
        return other
    raise NotLeader(f"nobody leads partition {part['partition']} now")
