"""Policies of the inventory: show them with their sources and the use of quotas, and set them."""

from functools import partial
from typing import Final, TypeAlias

import msgspec

from duramen.base import errors
from duramen.base.settings import Value
from duramen.coordinators.inventory.policies import PoliciesFound
from duramen.doors.http.accounts import account_of
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster
from duramen.doors.http.types.policies import (
    PoliciesInfo,
    PoliciesRequest,
    PolicyInfo,
    PolicyQuery,
    QuotaInfo,
    SetPoliciesQuery,
)
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_Query: TypeAlias = PolicyQuery | SetPoliciesQuery


def _path(call: Call) -> list[str]:
    return [call.path[part] for part in ("tenant", "namespace", "name") if part in call.path]


def _shown(value: Value | None) -> bool | int | str | None:
    return int(value) if isinstance(value, float) else value


async def _found(call: Call, query: _Query) -> PoliciesInfo:
    inventory, account = call.broker.inventory, await account_of(call, query)

    def read() -> PoliciesInfo:
        found: PoliciesFound = inventory.policies.find(account, _path(call))
        effective = {name: PolicyInfo(_shown(one.value), one.level) for name, one in found.effective.items()}
        quotas = [QuotaInfo(one.policy, one.level, one.limit, one.used) for one in found.quotas]
        return PoliciesInfo(found.level, dict(found.own), effective, quotas, inventory.position)

    await call_back(inventory.quotas.refresh_usage)
    return await call_back(lambda done: inventory.read(read, done))


async def _show(call: Call, query: PolicyQuery) -> PoliciesInfo:
    return await _found(call, query)


async def _set(call: Call, query: SetPoliciesQuery, body: PoliciesRequest) -> PoliciesInfo:
    policies, account = call.broker.inventory.policies, await account_of(call, query)
    shard, place = await call_back(partial(policies.change, account, _path(call), body.policies))
    confirmed: list[int] | msgspec.UnsetType = msgspec.UNSET
    if query.wait:
        confirmed = await call_back(partial(policies.when_effective, shard, place, query.wait_ms))
    info = await _found(call, query)
    info.confirmed = confirmed
    return info


_READING: Final = (errors.CoordinatorLoading, errors.NotCoordinator, errors.RequestInvalid)
_WRITING: Final = (
    *_READING, errors.NodeStopping, errors.StorageFailed, errors.StorageFull, errors.PolicyInvalid,
    errors.PolicyNotEffective, errors.InventoryNameInvalid,
)  # fmt: skip
_TENANT: Final = (errors.TenantNotFound,)
_NAMESPACE: Final = (*_TENANT, errors.NamespaceNotFound)
_TOPIC: Final = (*_NAMESPACE, errors.TopicNotFound)
_PLACES: Final = (
    ("", "an account", ()),
    ("/{tenant}", "a tenant", _TENANT),
    ("/{tenant}/{namespace}", "a namespace", _NAMESPACE),
    ("/{tenant}/{namespace}/{name:any}", "a topic", _TOPIC),
)

ROUTES = tuple(
    route
    for path, noun, missing in _PLACES
    for route in (
        HttpRoute(
            "GET", f"/v1/policies{path}", _show, on_cluster(Operation.DESCRIBE),
            f"Policies of {noun}: those that count and where they are set, and how much of quotas is used",
            (*_READING, *missing),
        ),
        HttpRoute(
            "PATCH", f"/v1/policies{path}", _set, on_cluster(Operation.ALTER), f"Set policies of {noun}",
            (*_WRITING, *missing),
        ),
    )
)  # fmt: skip
