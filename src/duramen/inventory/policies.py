"""Policies of accounts, tenants, namespaces and topics: definitions, and the effective value. Pure.

Shard 0 stores those of accounts, tenants and namespaces, also in memory; a topic's own are a row of the shard that
created it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from duramen.base.catalogue.inventory import ACCOUNT, LEVELS, NAMESPACE, POLICIES, TENANT
from duramen.base.errors import ConfigInvalid, PolicyInvalid
from duramen.base.settings import Value, check, nearest
from duramen.inventory.events import (
    InventoryEvent,
    NamespaceRemoved,
    NamespaceSwept,
    Policies,
    PoliciesPut,
    TenantRemoved,
)
from duramen.inventory.ids import TopicKey

__all__ = [
    "DEFAULT", "Effective", "Limit", "PolicyChange", "PolicyScope", "PolicyTable", "changed_policies",
    "check_policies", "effective", "inherited", "limits", "read_policies",
]  # fmt: skip

DEFAULT: Final = "default"
"""The level of a value that is not set."""

PolicyChange: TypeAlias = Mapping[str, bool | int | str | None]
"""New values by name; None removes one."""

_OWN: Final = msgspec.msgpack.Decoder(Policies)


class PolicyScope(NamedTuple):
    """The owner of policies: an account by name, a tenant or a namespace by id, a topic by key."""

    level: str
    account: str = ""
    id: int = 0
    topic: TopicKey | None = None


class Effective(NamedTuple):
    """The effective value, and the level at which it is set; a quota that is not set is None."""

    value: Value | None
    level: str


class Limit(NamedTuple):
    """A quota in force, and its scope."""

    scope: PolicyScope
    value: int


def read_policies(value: bytes | None) -> Policies:
    """A topic's own policies from its row."""
    return {} if value is None else _OWN.decode(value)


def check_policies(level: str, changes: PolicyChange) -> PolicyChange:
    """The changes, converted to the right types. Raises PolicyInvalid, which names the policy."""
    return {name: _checked(level, name, value) for name, value in changes.items()}


def _checked(level: str, name: str, value: bool | int | str | None) -> bool | int | str | None:
    policy = POLICIES.get(name)
    if policy is None:
        raise PolicyInvalid(f"there is no policy {name[:80]}{nearest(name, POLICIES)}")
    if level not in policy.levels:
        raise PolicyInvalid(f"{name} is not set on a {level}, but on {_listed(policy.levels)}")
    if value is None:
        return None
    if isinstance(value, bool) and policy.setting.kind != "flag":
        raise PolicyInvalid(f"{name}: {str(value).lower()} does not fit; it must be {policy.setting.expected}")
    try:
        found = check(policy.setting, value)
    except ConfigInvalid as error:
        raise PolicyInvalid(str(error)) from None
    return int(found) if isinstance(found, float) else found


def _listed(levels: Sequence[str]) -> str:
    names = [f"{'an' if level == ACCOUNT else 'a'} {level}" for level in levels]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def changed_policies(own: Policies, changes: PolicyChange) -> Policies:
    """The policies after the changes."""
    values = own | dict(changes)
    return {name: value for name, value in sorted(values.items()) if value is not None}


def effective(level: str, chain: Sequence[tuple[str, Policies]]) -> dict[str, Effective]:
    """The effective value of each policy at a level; `chain` has the policies by level, the nearest first."""
    found = dict[str, Effective]()
    below = LEVELS.index(level)
    for name, policy in POLICIES.items():
        if any(LEVELS.index(one) <= below for one in policy.levels):
            default = None if policy.quota else policy.setting.default
            there = (Effective(own[name], source) for source, own in chain if name in own)
            found[name] = next(there, Effective(default, DEFAULT))
    return found


def inherited(name: str, chain: Iterable[Policies]) -> Value | None:
    """The nearest value of a policy in a chain; None if it is not set."""
    return next((own[name] for own in chain if name in own), None)


def limits(name: str, chain: Sequence[tuple[PolicyScope, Policies]]) -> Iterator[Limit]:
    """Each quota of that name in a chain: all of them apply."""
    for scope, own in chain:
        value = own.get(name)
        if value is not None:
            yield Limit(scope, int(value))


class PolicyTable:
    """The policies of accounts, tenants and namespaces."""

    def __init__(self) -> None:
        self._own: dict[PolicyScope, Policies] = {}
        self._set = Counter[str]()

    def sets(self, name: str) -> bool:
        """Whether a policy is set anywhere."""
        return self._set[name] > 0

    def own(self, scope: PolicyScope) -> Policies:
        """The own policies of a scope."""
        return self._own.get(scope, {})

    def every(self) -> Iterator[PoliciesPut]:
        """All policies, as events."""
        for (level, account, number, _), policies in self._own.items():
            yield PoliciesPut(level, account, number, policies)

    def chain(self, namespace: int, tenant: int, account: str) -> list[tuple[PolicyScope, Policies]]:
        """The policies of a namespace, its tenant and its account, in this order."""
        of_tenant, of_account = PolicyScope(TENANT, id=tenant), PolicyScope(ACCOUNT, account)
        return [(scope, self.own(scope)) for scope in (PolicyScope(NAMESPACE, id=namespace), of_tenant, of_account)]

    def apply(self, event: InventoryEvent) -> None:
        """Apply an event; most change nothing here."""
        match event:
            case PoliciesPut(level, account, number, policies):
                self._put(PolicyScope(level, account, number), policies)
            case TenantRemoved(tenant):
                self._put(PolicyScope(TENANT, id=tenant), {})
            case NamespaceRemoved(namespace) | NamespaceSwept(namespace):
                self._put(PolicyScope(NAMESPACE, id=namespace), {})
            case _:
                pass

    def _put(self, scope: PolicyScope, policies: Policies) -> None:
        self._set.subtract(self.own(scope).keys())
        self._set.update(policies.keys())
        if policies:
            self._own[scope] = policies
        else:
            self._own.pop(scope, None)
