"""Partitions that a node has counted, named for people: the first few of many."""

from collections.abc import Mapping
from typing import Any, Final

from duramen.cli.tables import plain

__all__ = ["named_places"]

_NAMED: Final = 5


def named_places(found: Mapping[str, Any]) -> str:
    """Those of which there are `count`, and of which `first` are named."""
    named = " ".join(f"{plain(place['stream'])}:{place['partition']}" for place in found["first"][:_NAMED])
    more = f" and {found['count'] - _NAMED} more" if found["count"] > _NAMED else ""
    return f"{named}{more}"
