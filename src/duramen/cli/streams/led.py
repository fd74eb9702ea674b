"""The node that leads a partition, for commands that change it."""

from collections.abc import Mapping
from typing import Any

from duramen.base.errors import NotLeader
from duramen.client.http import HttpNode

__all__ = ["leader_of"]


def leader_of(server: HttpNode, part: Mapping[str, Any]) -> HttpNode:
    """The node that leads a partition, as `server` tells of it. Raises NotLeader."""
    if part["leads"]:
        return server
    for other in server.others({part["leader"]}):
        return other
    raise NotLeader(f"nobody leads partition {part['partition']} now")
