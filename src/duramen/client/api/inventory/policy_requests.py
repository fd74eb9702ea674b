"""Policy requests over HTTP and their results, for both clients. Pure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from duramen.client.api.arguments import checked_config, flag, refused, text
from duramen.client.api.http import Program, Question
from duramen.client.api.inventory.requests import query
from duramen.client.api.values import value_of

__all__ = ["PoliciesInfo", "PolicyInfo", "PolicyQuota", "get_policies", "set_policies"]


class PolicyInfo(msgspec.Struct, frozen=True):
    """The effective value of a policy, None for no limit; `source` is the level at which it is set.

    >>> client.inventory.policies.describe().effective["auto.create.topics.enable"]
    PolicyInfo(value=False, source='default')
    """

    value: bool | int | str | None
    source: str


class PolicyQuota(msgspec.Struct, frozen=True):
    """A quota that applies; `source` is the level at which it is set and whose total it limits.

    >>> PolicyQuota("quota.topics", "tenant", 100, 7).used
    7
    """

    policy: str
    source: str
    limit: int
    used: int


class PoliciesInfo(msgspec.Struct, frozen=True):
    """Policies of an account, a tenant, a namespace or a topic.

    `own` are those set on it, `effective` all that apply, including inherited ones; all `quotas` apply. `confirmed` are
    the nodes that apply a change, if the call waited for them.

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
    parts = text("path", path).split("/", 2) if path != "" else []
    if not all(parts):
        raise refused("path", path, "TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC")
    return "/v1/policies" + "".join(f"/{quote(part, safe='')}" for part in parts)


def get_policies(account: str, path: str) -> Program[PoliciesInfo]:
    """Policies of a path."""
    return value_of((yield Question("GET", _path(path) + query(account))), PoliciesInfo)


def set_policies(
    account: str, path: str, changes: Mapping[str, bool | int | str | None], *, wait_effective: bool
) -> Program[PoliciesInfo]:
    """Set policies of a path."""
    waits = {"wait": "effective"} if flag("wait_effective", wait_effective) else {}
    body: dict[str, Any] = {"policies": checked_config("policies", changes, may_be_none=True)}
    return value_of((yield Question("PATCH", _path(path) + query(account, **waits), body)), PoliciesInfo)
