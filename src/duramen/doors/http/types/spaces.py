"""Queue spaces as JSON."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

__all__ = ["SpaceInfo", "SpaceList", "SpaceRequest", "SpacesQuery"]

_MOST_SHARDS: Final = 1000


class SpaceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A queue space to create. Its number of shards cannot change later."""

    name: str
    shards: Annotated[int, Meta(ge=1, le=_MOST_SHARDS)] = 16
    config: dict[str, str | int | float | bool] = {}


class SpaceInfo(msgspec.Struct):
    """A queue space. `bytes` is the size of its logs; `created` is true if the request created it."""

    name: str
    shards: int
    created_at_ms: int
    bytes: int
    config: dict[str, str]
    created: bool | msgspec.UnsetType = msgspec.UNSET


class SpacesQuery(msgspec.Struct):
    """Selects the spaces of a listing."""

    prefix: Annotated[str, Meta(description="Only names with this prefix")] = ""
    after: Annotated[str, Meta(description="Continue after this name: `next` of the previous page")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="The most spaces on one page")] = 1000


class SpaceList(msgspec.Struct):
    """Spaces in the order of their names. `next` is `after` of the next page; null: this is the last page."""

    spaces: list[SpaceInfo]
    next: str | None
