"""Changes of the inventory as JSON, and the requests for them."""

from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from duramen.coordinators.inventory.feed import ChangePage
from duramen.inventory.feed import InventoryChange, follow_token

__all__ = ["ChangeInfo", "ChangesInfo", "ChangesQuery", "ChangesRequest", "TopicNamed", "changes_info"]

_LARGEST_PAGE: Final = 1000
_LONGEST_WAIT_MS: Final = 60_000

_Account = Annotated[str, Meta(min_length=1, description="The account; without it the node's `inventory.account`")]
_Limit = Annotated[int, Meta(ge=1, le=_LARGEST_PAGE, description="The most changes on one page")]
_Wait = Annotated[int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for a change if there is none")]


class _Wanted(msgspec.Struct):
    account: _Account = ""
    tenant: Annotated[str, Meta(min_length=1, description="Only this tenant and its contents")] = ""
    namespace: Annotated[str, Meta(min_length=1, description="Only this namespace of the tenant and its contents")] = ""
    topic: Annotated[str, Meta(min_length=1, description="Only this topic of the namespace")] = ""
    prefix: Annotated[
        str, Meta(min_length=1, description="Only topics of the namespace whose names have this prefix")
    ] = ""
    follow: Annotated[
        str, Meta(min_length=1, description="In place of names, `follow` of a response: the same under any name")
    ] = ""
    position: Annotated[str, Meta(description="Changes from this position on; without it, from now on")] = ""


class ChangesQuery(_Wanted):
    """The scope to follow, and the position."""

    limit: _Limit = 100
    wait_ms: _Wait = 0


class ChangesRequest(_Wanted, forbid_unknown_fields=True):
    """The same in a request over NATS."""

    limit: _Limit = 100
    wait_ms: _Wait = 0


class TopicNamed(msgspec.Struct):
    """A name and the lasting id of its topic."""

    name: str
    id: UUID


class ChangeInfo(msgspec.Struct, omit_defaults=True):
    """A change; reading continues after it from `position`.

    `kind` is tenant-put, tenant-renamed, tenant-deleted, namespace-put, namespace-moved, namespace-deleted,
    topics-created, topic-moved, topic-deleted, alias-created, alias-deleted or policies. `tenant` and `namespace` are
    the present names, `old` is the previous path, which `kept_alias` makes an alias. The ids of tenants and namespaces
    stay when these are renamed.
    """

    kind: str
    position: str
    tenant: str = ""
    namespace: str = ""
    topics: list[TopicNamed] = []
    old: str = ""
    labels: dict[str, str] | None = None
    policies: dict[str, bool | int | str] | None = None
    tenant_id: int = 0
    namespace_id: int = 0
    subjects: list[str] | None = None
    old_namespace_id: int = 0
    kept_alias: bool = False


class ChangesInfo(msgspec.Struct):
    """A page of changes, and the position after it; `follow` names what is followed by its id."""

    changes: list[ChangeInfo]
    position: str
    follow: str


def changes_info(page: ChangePage) -> ChangesInfo:
    """A page as JSON."""
    found = [_info(change, position) for change, position in page.changes]
    return ChangesInfo(found, page.position, follow_token(page.scope))


def _info(change: InventoryChange, position: str) -> ChangeInfo:
    topics = [TopicNamed(*topic) for topic in change.topics]
    return ChangeInfo(
        change.kind, position, change.tenant, change.namespace, topics, change.old, change.labels, change.policies,
        change.tenant_id, change.namespace_id, None if change.subjects is None else [*change.subjects],
        change.old_namespace_id, change.kept_alias,
    )  # fmt: skip
