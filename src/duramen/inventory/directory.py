"""Tenants and namespaces in memory, and decisions about them. Pure.

Shard 0 has all of them: tens of thousands at most. Every topic name starts with them.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from duramen.base.catalogue.inventory import ACCOUNT, NAMESPACE, TENANT
from duramen.base.errors import (
    InventoryNameInvalid,
    NamespaceExists,
    NamespaceNotFound,
    SubjectInvalid,
    TenantExists,
    TenantNotFound,
)
from duramen.base.ports import StateRows
from duramen.inventory.events import (
    DirectoryEvent,
    InventoryEvent,
    Labels,
    NamespacePut,
    NamespaceRemoved,
    NamespaceSwept,
    Policies,
    PoliciesPut,
    Renamed,
    TenantPut,
    TenantRemoved,
)
from duramen.inventory.names import check_account_name, check_namespace_name, check_tenant_name
from duramen.inventory.policies import PolicyChange, PolicyScope, PolicyTable, changed_policies, check_policies
from duramen.inventory.rows import (
    NEXT_IDS_KEY,
    POLICIES_END,
    POLICIES_FIRST,
    namespace_key,
    read_next_ids,
    tenant_key,
)
from duramen.inventory.subjects import check_subjects, overlap

__all__ = [
    "CreateNamespace",
    "CreateTenant",
    "DeleteNamespace",
    "DeleteTenant",
    "Directory",
    "DirectoryCommand",
    "NamespaceIsSwept",
    "SetPolicies",
    "UpdateNamespace",
    "UpdateTenant",
    "check_labels",
    "directory_keys",
]

_Put = TypeVar("_Put", TenantPut, NamespacePut)

_MOST_LABELS: Final = 64
_LONGEST_LABEL: Final = 256
_MOVES: Final = "moves"
"""Serialised with each other: a namespace leaves a tenant before the tenant's deletion, or not at all."""
_POLICIES: Final = msgspec.msgpack.Decoder(PoliciesPut)
_ROW: Final = msgspec.msgpack.Decoder(TenantPut | NamespacePut | NamespaceRemoved)


class CreateTenant(NamedTuple):
    """Create a tenant. The response is its `TenantPut`, and whether it is new."""

    account: str
    name: str
    labels: Labels
    now_ms: int


class UpdateTenant(NamedTuple):
    """Change the name or labels; None leaves them unchanged."""

    tenant: int
    account: str
    name: str | None
    labels: Labels | None


class DeleteTenant(NamedTuple):
    """Delete a tenant with everything in it."""

    tenant: int


class CreateNamespace(NamedTuple):
    """Create a namespace. The response is its `NamespacePut`, and whether it is new."""

    tenant: int
    name: str
    labels: Labels
    now_ms: int


class UpdateNamespace(NamedTuple):
    """Change the name, tenant, labels or subjects; None leaves them unchanged. `to_tenant` is the new tenant."""

    namespace: int
    to_tenant: int
    name: str | None
    labels: Labels | None
    subjects: tuple[str, ...] | None = None


class DeleteNamespace(NamedTuple):
    """Delete a namespace with all its topics."""

    namespace: int


class NamespaceIsSwept(NamedTuple):
    """No shard has rows of the namespace any more."""

    namespace: int


class SetPolicies(NamedTuple):
    """Change policies of an account, a tenant or a namespace. The response is the new policies."""

    scope: PolicyScope
    changes: PolicyChange


DirectoryCommand: TypeAlias = (
    CreateTenant | UpdateTenant | DeleteTenant | CreateNamespace | UpdateNamespace | DeleteNamespace | NamespaceIsSwept
    | SetPolicies
)  # fmt: skip


def directory_keys(command: DirectoryCommand) -> Collection[Hashable]:
    """Commands that share one of these are decided one after the other."""
    match command:
        case CreateTenant(account, name):
            return (("tenant", account, name),)
        case UpdateTenant(tenant, account, name):
            return (tenant, "t"), ("tenant", account, name)
        case DeleteTenant(tenant):
            return (tenant, "t"), _MOVES
        case CreateNamespace(tenant, name):
            return ((tenant, name),)
        case UpdateNamespace(namespace, tenant, name):
            return (namespace, "n"), (tenant, name), _MOVES
        case DeleteNamespace(namespace) | NamespaceIsSwept(namespace):
            return ((namespace, "n"),)
        case SetPolicies((level, account, number, _)):
            return ((account, "account"),) if level == ACCOUNT else ((number, level[:1]),)


def check_labels(labels: Labels) -> Labels:
    """Labels of a tenant or a namespace. Raises InventoryNameInvalid."""
    if len(labels) > _MOST_LABELS or any(len(text) > _LONGEST_LABEL for pair in labels.items() for text in pair):
        raise InventoryNameInvalid(
            f"there may be {_MOST_LABELS} labels, whose names and values have {_LONGEST_LABEL} characters at most"
        )
    for name in labels:
        if not name or "=" in name:
            raise InventoryNameInvalid(f"{name!r} is no name of a label: it is not empty and has no =")
    return labels


class Directory:
    """All tenants and namespaces."""

    def __init__(self) -> None:
        self._tenants: dict[int, TenantPut] = {}
        self._namespaces: dict[int, NamespacePut] = {}
        self._tenant_ids: dict[tuple[str, str], int] = {}
        self._namespace_ids: dict[tuple[int, str], int] = {}
        self._bound: dict[int, NamespacePut] = {}
        self._tenant_names: dict[str, list[str]] = {}
        self._namespace_names: dict[int, list[str]] = {}
        self._next_ids = [1, 1]
        self.policies = PolicyTable()
        """The policies of accounts, tenants and namespaces."""
        self.removed: dict[int, None] = {}
        """Removed namespaces that may still have rows in shards."""
        self.version = 0
        """Counts the events of tenants, namespaces and their policies."""
        self.removals = 0
        """Counts the steps of removals of namespaces."""

    def load(self, rows: StateRows) -> None:
        """Load everything from rows."""
        self._next_ids = list(read_next_ids(rows.get(NEXT_IDS_KEY)))
        for first in (tenant_key(0), namespace_key(0)):
            for _, value in rows.scan(first, bytes((first[0] + 1,))):
                self.apply(_ROW.decode(value))
        for _, value in rows.scan(POLICIES_FIRST, POLICIES_END):
            self.apply(_POLICIES.decode(value))

    # -- queries ------------------------------------------------------------------------------------

    def tenant(self, account: str, name: str) -> TenantPut:
        """A tenant by its name. Raises TenantNotFound."""
        found = self._tenant_ids.get((account, name))
        if found is None:
            raise TenantNotFound(f"there is no tenant {name[:80]}")
        return self._tenants[found]

    def tenant_by_id(self, tenant: int) -> TenantPut | None:
        """A tenant."""
        return self._tenants.get(tenant)

    def namespace(self, account: str, tenant: str, name: str) -> NamespacePut:
        """A namespace by its names. Raises TenantNotFound, NamespaceNotFound."""
        found = self._namespace_ids.get((self.tenant(account, tenant).id, name))
        if found is None:
            raise NamespaceNotFound(f"there is no namespace {tenant}/{name[:80]}")
        return self._namespaces[found]

    def namespace_by_id(self, namespace: int) -> NamespacePut | None:
        """A namespace that is not removed."""
        found = self._namespaces.get(namespace)
        return found if found is not None and found.tenant in self._tenants else None

    def policies_of(self, namespace: int) -> list[tuple[PolicyScope, Policies]]:
        """The policies of a namespace, its tenant and its account, in this order; empty for a removed one."""
        found = self.namespace_by_id(namespace)
        if found is None:
            return []
        return self.policies.chain(namespace, found.tenant, self._tenants[found.tenant].account)

    def tenants(self, account: str, first: str = "") -> Iterator[TenantPut]:
        """Tenants of an account ordered by name, from a name on."""
        names = self._tenant_names.get(account, [])
        for at in range(bisect_left(names, first), len(names)):
            yield self._tenants[self._tenant_ids[account, names[at]]]

    def namespaces(self, tenant: int, first: str = "") -> Iterator[NamespacePut]:
        """Namespaces of a tenant ordered by name, from a name on."""
        names = self._namespace_names.get(tenant, [])
        for at in range(bisect_left(names, first), len(names)):
            yield self._namespaces[self._namespace_ids[tenant, names[at]]]

    def accounts(self) -> list[str]:
        """The accounts that have tenants or policies, by name."""
        with_policies = (put.account for put in self.policies.every() if put.level == ACCOUNT)
        return sorted({*with_policies, *(account for account, names in self._tenant_names.items() if names)})

    def every_tenant(self) -> list[TenantPut]:
        """The tenants of all accounts."""
        return [*self._tenants.values()]

    def every_namespace(self) -> list[NamespacePut]:
        """The namespaces of all tenants."""
        return [one for one in self._namespaces.values() if one.tenant in self._tenants]

    def bound(self) -> Iterator[NamespacePut]:
        """Namespaces with subjects."""
        return (one for one in self._bound.values() if one.tenant in self._tenants)

    def count_tenants(self, account: str) -> int:
        """The number of tenants of an account."""
        return len(self._tenant_names.get(account, ()))

    def count_namespaces(self, tenant: int) -> int:
        """The number of namespaces of a tenant."""
        return len(self._namespace_names.get(tenant, ()))

    def has_tenant(self, account: str, name: str) -> bool:
        """Whether an account has a tenant of that name."""
        return (account, name) in self._tenant_ids

    def every(self) -> Iterator[TenantPut | NamespacePut | PoliciesPut]:
        """Everything, each tenant before its namespaces, and the policies."""
        for tenant in self._tenants.values():
            yield tenant
            yield from self.namespaces(tenant.id)
        yield from self.policies.every()

    # -- deciding -----------------------------------------------------------------------------------

    def decide(self, command: DirectoryCommand) -> tuple[Sequence[InventoryEvent], object]:
        """The events of a command, and its response. Raises the error of a refusal."""
        match command:
            case CreateTenant():
                return self._create_tenant(command)
            case UpdateTenant():
                return self._update_tenant(command)
            case CreateNamespace():
                return self._create_namespace(command)
            case UpdateNamespace():
                return self._update_namespace(command)
            case DeleteTenant(tenant):
                gone = self._tenants.get(tenant)
                return ([] if gone is None else [TenantRemoved(tenant, gone.account, gone.name)]), None
            case DeleteNamespace(namespace):
                there = self._namespaces.get(namespace)
                return ([] if there is None else [NamespaceRemoved(namespace, there.tenant, there.name)]), None
            case SetPolicies():
                return self._set_policies(command)
            case NamespaceIsSwept(namespace):
                return ([NamespaceSwept(namespace)] if namespace in self.removed else []), None

    def _create_tenant(self, command: CreateTenant) -> tuple[Sequence[InventoryEvent], object]:
        check_tenant_name(command.name)
        there = self._tenant_ids.get((command.account, command.name))
        if there is not None:
            return (), (self._tenants[there], False)
        check_account_name(command.account)
        event = TenantPut(
            self._next_ids[0], command.account, command.name, command.now_ms, check_labels(command.labels)
        )
        self._next_ids[0] += 1
        return [event], (event, True)

    def _update_tenant(self, command: UpdateTenant) -> tuple[Sequence[InventoryEvent], object]:
        now = self._tenants.get(command.tenant)
        if now is None:
            raise TenantNotFound("the tenant was deleted")
        name = now.name if command.name is None else check_tenant_name(command.name)
        if self._tenant_ids.get((now.account, name), now.id) != now.id:
            raise TenantExists(f"there is a tenant {name} already")
        labels = now.labels if command.labels is None else check_labels(command.labels)
        event = TenantPut(now.id, now.account, name, now.created_ms, labels)
        renamed = None if name == now.name else Renamed(TENANT, now.id, now.account, now.id, now.name)
        return _put(event, now, renamed), event

    def _create_namespace(self, command: CreateNamespace) -> tuple[Sequence[InventoryEvent], object]:
        check_namespace_name(command.name)
        if command.tenant not in self._tenants:
            raise TenantNotFound("the tenant was deleted")
        there = self._namespace_ids.get((command.tenant, command.name))
        if there is not None:
            return (), (self._namespaces[there], False)
        labels = check_labels(command.labels)
        event = NamespacePut(self._next_ids[1], command.tenant, command.name, command.now_ms, labels)
        self._next_ids[1] += 1
        return [event], (event, True)

    def _update_namespace(self, command: UpdateNamespace) -> tuple[Sequence[InventoryEvent], object]:
        now = self.namespace_by_id(command.namespace)
        if now is None:
            raise NamespaceNotFound("the namespace was deleted")
        if command.to_tenant not in self._tenants:
            raise TenantNotFound("the tenant was deleted")
        name = now.name if command.name is None else check_namespace_name(command.name)
        if self._namespace_ids.get((command.to_tenant, name), now.id) != now.id:
            raise NamespaceExists(f"there is a namespace {self._tenants[command.to_tenant].name}/{name} already")
        labels = now.labels if command.labels is None else check_labels(command.labels)
        subjects = now.subjects if command.subjects is None else self._checked_subjects(now.id, command.subjects)
        event = NamespacePut(now.id, command.to_tenant, name, now.created_ms, labels, subjects)
        moved = (name, command.to_tenant) != (now.name, now.tenant)
        renamed = Renamed(NAMESPACE, now.id, "", now.tenant, now.name) if moved else None
        return _put(event, now, renamed), event

    def _set_policies(self, command: SetPolicies) -> tuple[Sequence[InventoryEvent], object]:
        scope = command.scope
        if scope.level == TENANT and scope.id not in self._tenants:
            raise TenantNotFound("the tenant was deleted")
        if scope.level == NAMESPACE and self.namespace_by_id(scope.id) is None:
            raise NamespaceNotFound("the namespace was deleted")
        own = self.policies.own(scope)
        if scope.level == ACCOUNT and not own:
            check_account_name(scope.account)
        new = changed_policies(own, check_policies(scope.level, command.changes))
        return ([] if new == own else [PoliciesPut(scope.level, scope.account, scope.id, new)]), new

    def _checked_subjects(self, namespace: int, subjects: tuple[str, ...]) -> tuple[str, ...]:
        checked = check_subjects(subjects)
        for other in self._bound.values():
            for subject in checked if other.id != namespace else ():
                for taken in other.subjects:
                    if overlap(subject, taken):
                        raise SubjectInvalid(f"{subject} and {taken} of the namespace {other.name} overlap")
        return checked

    # -- applying -----------------------------------------------------------------------------------

    def apply(self, event: InventoryEvent) -> None:
        """Apply an event; those of topics change nothing here."""
        self.version += isinstance(event, DirectoryEvent)
        self.removals += isinstance(event, TenantRemoved | NamespaceRemoved | NamespaceSwept)
        self.policies.apply(event)
        match event:
            case TenantPut():
                self._forget_tenant(event.id)
                self._tenants[event.id] = replace(event, renamed=False)
                self._tenant_ids[event.account, event.name] = event.id
                insort(self._tenant_names.setdefault(event.account, []), event.name)
                self._next_ids[0] = max(self._next_ids[0], event.id + 1)
            case NamespacePut():
                self._forget_namespace(event.id)
                self._put_namespace(replace(event, renamed=False))
            case TenantRemoved(tenant):
                for namespace in list(self.namespaces(tenant)):
                    self._forget_namespace(namespace.id)
                    self.removed[namespace.id] = None
                self._forget_tenant(tenant)
            case NamespaceRemoved(namespace):
                self._forget_namespace(namespace)
                self.removed[namespace] = None
            case NamespaceSwept(namespace):
                self.removed.pop(namespace, None)
            case _:
                pass

    def _put_namespace(self, event: NamespacePut) -> None:
        self._next_ids[1] = max(self._next_ids[1], event.id + 1)
        if event.tenant not in self._tenants:
            self.removed[event.id] = None
            return
        self._namespaces[event.id] = event
        if event.subjects:
            self._bound[event.id] = event
        self._namespace_ids[event.tenant, event.name] = event.id
        insort(self._namespace_names.setdefault(event.tenant, []), event.name)

    def _forget_tenant(self, tenant: int) -> None:
        known = self._tenants.pop(tenant, None)
        if known is not None:
            del self._tenant_ids[known.account, known.name]
            _remove(self._tenant_names[known.account], known.name)

    def _forget_namespace(self, namespace: int) -> None:
        self._bound.pop(namespace, None)
        known = self._namespaces.pop(namespace, None)
        if known is not None:
            del self._namespace_ids[known.tenant, known.name]
            _remove(self._namespace_names[known.tenant], known.name)


def _put(event: _Put, now: _Put, renamed: Renamed | None) -> Sequence[InventoryEvent]:
    """The events that change a tenant or a namespace."""
    if renamed is not None:
        return [replace(event, renamed=True), renamed]
    return [] if event == now else [event]


def _remove(names: list[str], name: str) -> None:
    del names[bisect_left(names, name)]
