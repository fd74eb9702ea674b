"""Tenants, namespaces and topics of the inventory, as JSON."""

from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duramen.doors.problems import Problem

__all__ = [
    "MOST_NAMES",
    "AccountInfo",
    "AccountList",
    "AccountQuery",
    "AliasRequest",
    "CreatedInfo",
    "FailedName",
    "LookupRequest",
    "MovedInfo",
    "NamesQuery",
    "NamesRequest",
    "NamespaceChange",
    "NamespaceInfo",
    "NamespaceList",
    "PartsQuery",
    "Position",
    "PositionQuery",
    "TenantChange",
    "TenantInfo",
    "TenantList",
    "TopicChange",
    "TopicInfo",
    "TopicList",
    "TopicMoveRequest",
    "TopicMovesRequest",
    "TopicNames",
    "TopicPathInfo",
    "TopicsFound",
    "TopicsQuery",
]

MOST_NAMES: Final = 100_000
"""Names of one request."""

_LARGEST_PAGE: Final = 1000

_Account = Annotated[str, Meta(min_length=1, description="The account; without it the node's `inventory.account`")]
_Position = Annotated[
    str, Meta(description="The `position` of an earlier response of any node; this response is at least as new")
]
_Labels = dict[str, str]
_Names = Annotated[list[str], Meta(min_length=1, max_length=MOST_NAMES)]


class AccountQuery(msgspec.Struct):
    """Whose tenants are meant."""

    account: _Account = ""
    position: _Position = ""


class PositionQuery(msgspec.Struct):
    """How new the response must be."""

    position: _Position = ""


class NamesQuery(msgspec.Struct):
    """Which names are listed."""

    position: _Position = ""
    prefix: Annotated[str, Meta(description="Only names with this prefix")] = ""
    glob: Annotated[
        str, Meta(min_length=1, description="Only names that match this glob: `*`, `?`, `[abc]`, `[!abc]`")
    ] = ""
    pattern: Annotated[str, Meta(min_length=1, description="Only names that match this RE2 expression as a whole")] = ""
    after: Annotated[str, Meta(description="`next` of the previous page of the same query")] = ""
    limit: Annotated[int, Meta(ge=1, le=_LARGEST_PAGE, description="The most on one page")] = _LARGEST_PAGE


class PartsQuery(NamesQuery):
    """Which tenants or namespaces of an account are listed."""

    account: _Account = ""
    label: Annotated[str, Meta(min_length=1, description="Only those with this label: KEY or KEY=VALUE")] = ""


class AccountInfo(msgspec.Struct):
    """An account and the numbers of its tenants and namespaces; of a single account also that of its topics."""

    name: str
    tenants: int
    namespaces: int
    position: str
    topics: int | msgspec.UnsetType = msgspec.UNSET


class AccountList(msgspec.Struct):
    """Accounts in the order of their names. `next` is `after` of the next page; null: this is the last page."""

    accounts: list[AccountInfo]
    next: str | None
    position: str


class NamesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Tenants or namespaces to create; existing ones stay unchanged."""

    names: _Names
    labels: _Labels = {}


class TopicNames(msgspec.Struct, forbid_unknown_fields=True):
    """Names of topics."""

    names: _Names


class FailedName(msgspec.Struct):
    """A row for which the request failed, and the reason: its number from 1 on, and its name, empty if it has none.

    Rows are the lines of NDJSON, blank ones included, the rows of Arrow, and the entries of JSON.
    """

    name: str
    problem: Problem
    row: int


class CreatedInfo(msgspec.Struct):
    """The number of names created, the number that existed, and the failures.

    `failures` is the number of failures; `failed` has the first 10,000 of NDJSON and Arrow, and all of JSON. `position`
    is the position after the change.
    """

    created: int
    existing: int
    failed: list[FailedName]
    failures: int
    position: str


class TenantInfo(msgspec.Struct):
    """A tenant and its number of namespaces; a single tenant also has its number of `topics`."""

    account: str
    name: str
    created_at_ms: int
    labels: _Labels
    namespaces: int
    position: str
    topics: int | msgspec.UnsetType = msgspec.UNSET


class TenantList(msgspec.Struct):
    """Tenants in the order of their names. `next` is `after` of the next page; null: this is the last page.

    A page may have fewer than `limit`, even none, before that: each request looks at a bounded number of names.
    """

    tenants: list[TenantInfo]
    next: str | None
    position: str


class TenantChange(msgspec.Struct, forbid_unknown_fields=True):
    """New values of a tenant."""

    name: str | None = None
    labels: _Labels | None = None


class NamespaceInfo(msgspec.Struct):
    """A namespace and its number of topics."""

    tenant: str
    name: str
    topics: int
    created_at_ms: int
    labels: _Labels
    subjects: list[str]
    position: str


class NamespaceList(msgspec.Struct):
    """Namespaces in the order of their names, those of all tenants in the order of the tenants' names.

    `next` is `after` of the next page; null: this is the last page. A page may have fewer than `limit`, even none,
    before that: each request looks at a bounded number of names.
    """

    namespaces: list[NamespaceInfo]
    next: str | None
    position: str


class NamespaceChange(msgspec.Struct, forbid_unknown_fields=True):
    """New values of a namespace. With `tenant` the namespace moves to that tenant with all its topics."""

    tenant: str | None = None
    name: str | None = None
    labels: _Labels | None = None
    subjects: list[str] | None = None


class TopicPathInfo(msgspec.Struct, forbid_unknown_fields=True):
    """The path of a topic."""

    tenant: str
    namespace: str
    name: str


class TopicInfo(msgspec.Struct):
    """A topic by its name or an alias. `id` never changes.

    `alias` is true if the name is an alias; then `topic` is the topic's own name. `aliases` are the first hundred
    aliases of the topic. `durability` is what an acknowledgement of its records means: `sync` or `os`.
    """

    tenant: str
    namespace: str
    name: str
    id: UUID
    alias: bool = False
    topic: TopicPathInfo | msgspec.UnsetType = msgspec.UNSET
    aliases: list[TopicPathInfo] | msgspec.UnsetType = msgspec.UNSET
    durability: str | msgspec.UnsetType = msgspec.UNSET
    position: str | msgspec.UnsetType = msgspec.UNSET


class TopicsQuery(msgspec.Struct):
    """Which topics are found: of a namespace, of a tenant or of the account."""

    account: _Account = ""
    position: _Position = ""
    tenant: Annotated[str, Meta(min_length=1, description="Only topics of this tenant")] = ""
    namespace: Annotated[str, Meta(min_length=1, description="Only topics of this namespace of the tenant")] = ""
    prefix: Annotated[str, Meta(min_length=1, description="Only names with this prefix")] = ""
    glob: Annotated[
        str, Meta(min_length=1, description="Only topics that match this glob: `*`, `?`, `[abc]`, `[!abc]`")
    ] = ""
    pattern: Annotated[
        str, Meta(min_length=1, description="Only topics whose whole name matches this RE2 expression")
    ] = ""
    label: Annotated[
        str, Meta(min_length=1, description="Only topics whose namespace or tenant has this label: KEY or KEY=VALUE")
    ] = ""
    kind: (
        Annotated[
            Literal["topic", "alias", "dangling-alias"],
            Meta(
                description="`topic`: no aliases; `alias`: only aliases; `dangling-alias`: only aliases whose topics"
                " were deleted with their namespaces, which no other search finds"
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    durability: (
        Annotated[Literal["sync", "os"], Meta(description="Only topics with this durability")] | msgspec.UnsetType
    ) = msgspec.UNSET
    policy: Annotated[str, Meta(min_length=1, description="Only topics on which this policy is set, not inherited")] = (
        ""
    )
    after: Annotated[str, Meta(description="`next` of the previous page of the same query")] = ""
    limit: Annotated[int, Meta(ge=1, le=_LARGEST_PAGE, description="The most topics on one page")] = 100


class TopicList(msgspec.Struct):
    """Topics and aliases in the order of their names. `next` is `after` of the next page; null: this is the last page.

    A page may have fewer than `limit` topics, even none, before the last page: each request looks at a bounded number
    of names.
    """

    topics: list[TopicInfo]
    next: str | None
    position: str


class TopicsFound(msgspec.Struct):
    """The topics of the names, in the order of the request; null: there is no such name."""

    topics: list[TopicInfo | None]
    position: str


class LookupRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Names of topics to look up."""

    names: Annotated[list[str], Meta(min_length=1, max_length=_LARGEST_PAGE)]


class TopicChange(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The new path of a topic; absent parts stay. With `keep_alias` the old name becomes an alias."""

    tenant: str | None = None
    namespace: str | None = None
    name: str | None = None
    keep_alias: bool = False


class TopicMoveRequest(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A topic of the namespace, and its new path."""

    name: str
    to: TopicChange


class TopicMovesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Topics of a namespace to rename or move, each on its own."""

    moves: Annotated[list[TopicMoveRequest], Meta(min_length=1, max_length=_LARGEST_PAGE)]


class MovedInfo(msgspec.Struct):
    """The number of moved topics, and the failures by their old names.

    `failures` is the number of failures; `failed` has the first 10,000 of NDJSON, and all of JSON.
    """

    moved: int
    failed: list[FailedName]
    failures: int
    position: str


class AliasRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new alias in the namespace for the topic named by `topic`."""

    name: str
    topic: TopicPathInfo


class Position(msgspec.Struct):
    """A position of the inventory."""

    position: str
