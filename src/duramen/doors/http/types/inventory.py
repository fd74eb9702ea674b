"""Tenants, namespaces and topics of the inventory, as JSON."""

from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from duramen.doors.problems import Problem

__all__ = [
    "MOST_NAMES",
    "AccountQuery",
    "AliasWish",
    "CreatedInfo",
    "FailedName",
    "LookupWish",
    "MovedInfo",
    "NamesWish",
    "NamespaceChange",
    "NamespaceInfo",
    "NamespaceList",
    "PartsQuery",
    "Position",
    "TenantChange",
    "TenantInfo",
    "TenantList",
    "TopicChange",
    "TopicInfo",
    "TopicList",
    "TopicMoveWish",
    "TopicMovesWish",
    "TopicNames",
    "TopicPathInfo",
    "TopicsFound",
    "TopicsQuery",
]

MOST_NAMES: Final = 100_000
"""Names of one request."""

_LARGEST_PAGE: Final = 1000

_Account = Annotated[str, Meta(description="The account; without it the node's `inventory.account`")]
_Position = Annotated[
    str, Meta(description="The `position` of an earlier response, of any node: the answer is at least as new")
]
_Labels = dict[str, str]
_Names = Annotated[list[str], Meta(min_length=1, max_length=MOST_NAMES)]


class AccountQuery(msgspec.Struct):
    """Whose tenants are meant."""

    account: _Account = ""
    position: _Position = ""


class PartsQuery(msgspec.Struct):
    """Which tenants or namespaces are listed."""

    account: _Account = ""
    position: _Position = ""
    prefix: Annotated[str, Meta(description="Only those whose names begin like this")] = ""
    after: Annotated[str, Meta(description="The `next` of the page before; it is of the same query")] = ""
    limit: Annotated[int, Meta(ge=1, le=_LARGEST_PAGE, description="The most of one page")] = _LARGEST_PAGE


class NamesWish(msgspec.Struct, forbid_unknown_fields=True):
    """Tenants or namespaces to make; those that are there stay as they are."""

    names: _Names
    labels: _Labels = {}


class TopicNames(msgspec.Struct, forbid_unknown_fields=True):
    """Names of topics."""

    names: _Names


class FailedName(msgspec.Struct):
    """A name that nothing came of, and why."""

    name: str
    problem: Problem


class CreatedInfo(msgspec.Struct):
    """How many names are new, how many were there, and which failed. `position` is how far each shard's view is."""

    created: int
    existing: int
    failed: list[FailedName]
    position: str


class TenantInfo(msgspec.Struct):
    """A tenant."""

    account: str
    name: str
    created_at_ms: int
    labels: _Labels
    position: str


class TenantList(msgspec.Struct):
    """Tenants in the order of their names; `next` is what comes `after`, null on the last page."""

    tenants: list[TenantInfo]
    next: str | None
    position: str


class TenantChange(msgspec.Struct, forbid_unknown_fields=True):
    """What of a tenant is another from here on."""

    name: str | None = None
    labels: _Labels | None = None


class NamespaceInfo(msgspec.Struct):
    """A namespace, and how many topics it has."""

    tenant: str
    name: str
    topics: int
    created_at_ms: int
    labels: _Labels
    subjects: list[str]
    position: str


class NamespaceList(msgspec.Struct):
    """Namespaces in the order of their names; `next` is what comes `after`, null on the last page."""

    namespaces: list[NamespaceInfo]
    next: str | None
    position: str


class NamespaceChange(msgspec.Struct, forbid_unknown_fields=True):
    """What of a namespace is another from here on; with `tenant` it moves there with all its topics."""

    tenant: str | None = None
    name: str | None = None
    labels: _Labels | None = None
    subjects: list[str] | None = None


class TopicPathInfo(msgspec.Struct, forbid_unknown_fields=True):
    """A topic by its names."""

    tenant: str
    namespace: str
    name: str


class TopicInfo(msgspec.Struct):
    """A name that leads to a topic. `id` is the topic's for ever; `alias`: it is not the topic's own name.

    `aliases` are the first hundred names that lead to the topic; `topic` is where an alias leads.
    """

    tenant: str
    namespace: str
    name: str
    id: UUID
    alias: bool = False
    topic: TopicPathInfo | msgspec.UnsetType = msgspec.UNSET
    aliases: list[TopicPathInfo] | msgspec.UnsetType = msgspec.UNSET
    position: str | msgspec.UnsetType = msgspec.UNSET


class TopicsQuery(msgspec.Struct):
    """Which topics are found: of a namespace, of a tenant or of the account."""

    account: _Account = ""
    position: _Position = ""
    tenant: Annotated[str, Meta(description="Only those of this tenant")] = ""
    namespace: Annotated[str, Meta(description="Only those of this namespace of the tenant")] = ""
    prefix: Annotated[str, Meta(min_length=1, description="Only those whose names begin like this")] = ""
    glob: Annotated[str, Meta(min_length=1, description="Only those that match: `*`, `?`, `[abc]`, `[!abc]`")] = ""
    pattern: Annotated[
        str, Meta(min_length=1, description="Only those whose whole names match this RE2 expression")
    ] = ""
    after: Annotated[str, Meta(description="The `next` of the page before, of the same query")] = ""
    limit: Annotated[int, Meta(ge=1, le=_LARGEST_PAGE, description="The most topics of one page")] = 100


class TopicList(msgspec.Struct):
    """Topics and aliases in the order of their names; `next` is what comes `after`, null on the last page.

    A page may have fewer than `limit`, even none, although others follow: it is answered after so many names.
    """

    topics: list[TopicInfo]
    next: str | None
    position: str


class TopicsFound(msgspec.Struct):
    """What names lead to, in the order of the request; null: to nothing."""

    topics: list[TopicInfo | None]
    position: str


class LookupWish(msgspec.Struct, forbid_unknown_fields=True):
    """Names of topics that are looked up."""

    names: Annotated[list[str], Meta(min_length=1, max_length=_LARGEST_PAGE)]


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """Where a topic is from here on; what is not given stays. With `keep_alias` the old name leads to it."""

    tenant: str | None = None
    namespace: str | None = None
    name: str | None = None
    keep_alias: bool = False


class TopicMoveWish(msgspec.Struct, forbid_unknown_fields=True):
    """A topic of the namespace by its name, and where it is from here on."""

    name: str
    to: TopicChange


class TopicMovesWish(msgspec.Struct, forbid_unknown_fields=True):
    """Topics of a namespace that are renamed or moved, each by itself."""

    moves: Annotated[list[TopicMoveWish], Meta(min_length=1, max_length=_LARGEST_PAGE)]


class MovedInfo(msgspec.Struct):
    """How many topics were moved, and which failed, by the names that they had."""

    moved: int
    failed: list[FailedName]
    position: str


class AliasWish(msgspec.Struct, forbid_unknown_fields=True):
    """A name in the namespace that is to lead to the topic that `topic` leads to."""

    name: str
    topic: TopicPathInfo


class Position(msgspec.Struct):
    """How far each shard's view is."""

    position: str
