"""Queue spaces as JSON."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

__all__ = ["SpaceInfo", "SpaceList", "SpaceWish", "SpacesQuery"]

_MOST_SHARDS: Final = 1000


class SpaceWish(msgspec.Struct, forbid_unknown_fields=True):
    """A queue space to make. The number of its shards stays."""

    name: str
    shards: Annotated[int, Meta(ge=1, le=_MOST_SHARDS)] = 16
    config: dict[str, str | int | float | bool] = {}


class SpaceInfo(msgspec.Struct):
    """A queue space. `bytes` are those of its log; `created` says whether the request made it."""

    name: str
    shards: int
    created_at_ms: int
    bytes: int
    config: dict[str, str]
    created: bool | msgspec.UnsetType = msgspec.UNSET


class SpacesQuery(msgspec.Struct):
    """Which spaces are listed."""

    prefix: Annotated[str, Meta(description="Only those whose names begin like this")] = ""
    after: Annotated[str, Meta(description="Only those behind this name: the `next` of the page before")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="The most spaces of one page")] = 1000


class SpaceList(msgspec.Struct):
    """Spaces in the order of their names; `next` is what comes `after`, null on the last page."""

    spaces: list[SpaceInfo]
    next: str | None
