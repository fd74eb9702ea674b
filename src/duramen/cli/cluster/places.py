"""Prints partitions that a node counted: the first few of many."""

from collections.abc import Mapping
from typing import Any, Final

from duramen.cli.tables import plain

__all__ = ["leaderless_text", "named_places"]

_NAMED: Final = 5


def named_places(found: Mapping[str, Any]) -> str:
    """A text that names the first partitions, and counts the others."""
    named = " ".join(f"{plain(place['stream'])}:{place['partition']}" for place in found["first"][:_NAMED])
    more = f" and {found['count'] - _NAMED} more" if found["count"] > _NAMED else ""
    return f"{named}{more}"


def leaderless_text(found: Mapping[str, Any]) -> str:
    """The operator's action for partitions that no node can copy."""
    partitions = "partition has" if found["count"] == 1 else "partitions have"
    return (
        f"{found['count']} {partitions} no leader, and no other node can copy the records: {named_places(found)};"
        " start a node that holds one of the in-sync replicas, or accept the loss with `duramen cluster elect"
        " STREAM PARTITION --unclean` where another replica is live, or delete the stream; then run this again"
    )
