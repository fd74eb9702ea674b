"""Policy requests over HTTP and their results, for both clients. Pure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from duramen.client.api.arguments import flag, text
from duramen.client.api.http import Program, Question
from duramen.client.api.inventory_requests import query
from duramen.client.api.values import value_of

__all__ = ["PoliciesInfo", "PolicyInfo", "PolicyQuota", "get_policies", "set_policies"]


class PolicyInfo(msgspec.Struct, frozen=True):
    """The value of a policy that counts, None without a bound; `source` is the level at which it is set.

    >>> client.inventory.policies.describe().effective["auto.create.topics.enable"]
    PolicyInfo(value=False, source='default')
    """

    value: bool | int | str | None
    source: str


class PolicyQuota(msgspec.Struct, frozen=True):
    """A quota that bounds what was asked for; `source` is the level at which it is set, whose total it bounds.

    >>> PolicyQuota("quota.topics", "tenant", 100, 7).used
    7
    """

    policy: str
    source: str
    limit: int
    used: int


class PoliciesInfo(msgspec.Struct, frozen=True):
    """Policies of an account, a tenant, a namespace or a topic.

    `own` are those set on it, `effective` those that count, inherited ones too; all `quotas` count. `confirmed` are the
    nodes on which a change counts, where that was waited for.

    >>> client.inventory.policies.describe().level
    'account'
    """

    level: str
    own: dict[str, bool | int | str]
    effective: dict[str, PolicyInfo]
    quotas: list[PolicyQuota]
    position: str = ""
    confirmed: list[int] = []


def _path(path: str) -> str:
    parts = text("path", path).split("/", 2) if path else []
    return "/v1/policies" + "".join(f"/{quote(part, safe='')}" for part in parts)


def get_policies(account: str, path: str) -> Program[PoliciesInfo]:
    """Policies of what a path names."""
    return value_of((yield Question("GET", _path(path) + query(account))), PoliciesInfo)


def set_policies(
    account: str, path: str, changes: Mapping[str, bool | int | str | None], *, wait_effective: bool
) -> Program[PoliciesInfo]:
    """Set policies of what a path names."""
    waits = {"wait": "effective"} if flag("wait_effective", wait_effective) else {}
    wish: dict[str, Any] = {"policies": dict(changes)}
    return value_of((yield Question("PATCH", _path(path) + query(account, **waits), wish)), PoliciesInfo)
