"""Events of shards for subscribers to an entity or a prefix. Pure.

A scope has keys, and so has an event; the event belongs to a scope if they share one. So waiting subscribers are found
by the event's keys, and an event is examined only by those it concerns.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from duramen.base.catalogue import inventory as levels
from duramen.base.catalogue.inventory import ACCOUNT, NAMESPACE, TENANT, TOPIC
from duramen.inventory import events
from duramen.inventory.directory import Directory
from duramen.inventory.events import InventoryEvent, Policies
from duramen.inventory.ids import TopicKey, topic_id
from duramen.inventory.packing import unpack_names

__all__ = ["FeedKey", "FeedScope", "InventoryChange", "NamedTopic", "change_of", "event_keys", "is_known", "scope_keys"]

FeedKey: TypeAlias = tuple[str, Any]
"""`account`, `tenant` and `namespace`: their content; with `is` before: the entity itself; `topic`: a topic."""

_ITSELF: Final = "is "


class FeedScope(NamedTuple):
    """The scope of a subscription: an account, a tenant, a namespace, the names in it with `prefix`, or a topic.

    Its parents have ids too, and their own changes are included.
    """

    account: str
    tenant: int = 0
    namespace: int = 0
    prefix: bytes = b""
    topic: TopicKey | None = None


class NamedTopic(NamedTuple):
    """A name and the lasting id of its topic."""

    name: str
    id: UUID


class InventoryChange(NamedTuple):
    """A change. `tenant` and `namespace` are their present names; `old` is the previous path.

    Topics are those that were created, moved or deleted, or the one of an alias.
    """

    kind: str
    tenant: str = ""
    namespace: str = ""
    topics: Sequence[NamedTopic] = ()
    old: str = ""
    labels: dict[str, str] | None = None
    policies: Policies | None = None


def scope_keys(scope: FeedScope) -> frozenset[FeedKey]:
    """The keys of events in a scope."""
    keys: list[FeedKey] = [(_ITSELF + ACCOUNT, scope.account)]
    if scope.tenant:
        keys.append((_ITSELF + TENANT, scope.tenant))
    if scope.namespace:
        keys.append((_ITSELF + NAMESPACE, scope.namespace))
    if scope.topic is not None:
        keys.append((TOPIC, scope.topic))
    elif scope.namespace:
        keys.append((NAMESPACE, scope.namespace))
    else:
        keys.append((TENANT, scope.tenant) if scope.tenant else (ACCOUNT, scope.account))
    return frozenset(keys)


def event_keys(event: InventoryEvent, shard: int, directory: Directory) -> set[FeedKey]:
    """The keys of an event of a shard; none for an internal event."""
    match event:
        case events.TenantPut(number, account) | events.TenantRemoved(number, account):
            return {(_ITSELF + TENANT, number), (ACCOUNT, account)}
        case events.NamespacePut(number, tenant) | events.NamespaceRemoved(number, tenant):
            return {(_ITSELF + NAMESPACE, number), *_in_tenant(tenant, directory)}
        case events.Renamed(levels.TENANT, number, account):
            return {(_ITSELF + TENANT, number), (ACCOUNT, account)}
        case events.Renamed(_, number, _, tenant):
            return {(_ITSELF + NAMESPACE, number), *_in_tenant(tenant, directory)}
        case events.PoliciesPut(levels.ACCOUNT, account):
            return {(_ITSELF + ACCOUNT, account), (ACCOUNT, account)}
        case events.PoliciesPut(levels.TENANT, _, number):
            return {(_ITSELF + TENANT, number), *_in_tenant(number, directory)}
        case events.PoliciesPut(_, _, number):
            return {(_ITSELF + NAMESPACE, number), *_places((number,), directory)}
        case events.TopicsCreated(namespace):
            return set(_places((namespace,), directory))
        case events.TopicPlaced(sequence, namespace, _, _, _, old):
            return {(TOPIC, TopicKey(shard, sequence)), *_places((namespace, old), directory)}
        case events.AliasChanged(sequence, namespace) | events.TopicPoliciesPut(sequence, _, namespace):
            return {(TOPIC, TopicKey(shard, sequence)), *_places((namespace,), directory)}
        case _:
            return set()


def is_known(event: InventoryEvent, directory: Directory) -> bool:
    """Whether a directory has all namespaces of an event about topics, so that `event_keys` finds all its keys."""
    match event:
        case events.TopicsCreated(namespace) | events.AliasChanged(_, namespace):
            return directory.namespace_by_id(namespace) is not None
        case events.TopicPoliciesPut(_, _, namespace):
            return directory.namespace_by_id(namespace) is not None
        case events.TopicPlaced(_, namespace, name, _, _, old):
            wanted = (old,) if name is None else (old, namespace)
            return all(directory.namespace_by_id(one) is not None for one in wanted)
        case _:
            return True


def _places(namespaces: Iterable[int], directory: Directory) -> Iterator[FeedKey]:
    for namespace in namespaces:
        found = directory.namespace_by_id(namespace)
        if found is not None:
            yield NAMESPACE, namespace
            yield from _in_tenant(found.tenant, directory)


def _in_tenant(tenant: int, directory: Directory) -> Iterator[FeedKey]:
    found = directory.tenant_by_id(tenant)
    yield TENANT, tenant
    if found is not None:
        yield ACCOUNT, found.account


def change_of(
    event: InventoryEvent, shard: int, scope: FeedScope, directory: Directory, inventory: UUID
) -> InventoryChange | None:
    """The change for subscribers of a scope by an event; None if the prefix excludes its names."""
    match event:
        case events.TenantPut(_, _, name, _, labels):
            return InventoryChange("tenant-put", name, labels=labels)
        case events.TenantRemoved(_, _, name):
            return InventoryChange("tenant-deleted", name)
        case events.NamespacePut(_, tenant, name, _, labels):
            return InventoryChange("namespace-put", _tenant_name(tenant, directory), name, labels=labels)
        case events.NamespaceRemoved(_, tenant, name):
            return InventoryChange("namespace-deleted", _tenant_name(tenant, directory), name)
        case events.Renamed(levels.TENANT, number, _, _, name):
            return InventoryChange("tenant-renamed", _tenant_name(number, directory), old=name)
        case events.Renamed(_, number, _, tenant, name):
            old = f"{_tenant_name(tenant, directory)}/{name}"
            return InventoryChange("namespace-moved", *_path(number, directory), old=old)
        case events.PoliciesPut(level, _, number, policies):
            path = _path(number, directory) if level == NAMESPACE else (_tenant_name(number, directory), "")
            return InventoryChange("policies", *path, policies=policies)
        case _:
            return _change_of_topics(event, shard, scope, directory, inventory)


def _change_of_topics(
    event: InventoryEvent, shard: int, scope: FeedScope, directory: Directory, inventory: UUID
) -> InventoryChange | None:
    def topics(found: Iterable[tuple[bytes, int]]) -> list[NamedTopic]:
        return [NamedTopic(name.decode(), topic_id(inventory, TopicKey(shard, sequence))) for name, sequence in found]

    def followed(namespace: int, name: bytes) -> bool:
        here = not scope.namespace or scope.topic is not None or namespace == scope.namespace
        return here and name.startswith(scope.prefix)

    match event:
        case events.TopicsCreated(namespace, first, _, body):
            names = [(name, first + at) for at, name in enumerate(unpack_names(body)) if followed(namespace, name)]
            found = InventoryChange("topics-created", *_path(namespace, directory), topics(names))
            return found if names else None
        case events.TopicPlaced(sequence, namespace, name, _, _, old_namespace, old_name):
            if not followed(old_namespace, old_name) and (name is None or not followed(namespace, name)):
                return None
            old = "/".join((*_path(old_namespace, directory), old_name.decode()))
            if name is None:
                return InventoryChange(
                    "topic-deleted", *_path(old_namespace, directory), topics([(old_name, sequence)])
                )
            return InventoryChange("topic-moved", *_path(namespace, directory), topics([(name, sequence)]), old)
        case events.AliasChanged(sequence, namespace, name, there):
            kind = "alias-created" if there else "alias-deleted"
            alias = InventoryChange(kind, *_path(namespace, directory), topics([(name, sequence)]))
            return alias if followed(namespace, name) else None
        case events.TopicPoliciesPut(sequence, policies, namespace, name):
            path = _path(namespace, directory)
            put = InventoryChange("policies", *path, topics([(name, sequence)]), policies=policies)
            return put if followed(namespace, name) else None
        case _:
            return None


def _tenant_name(tenant: int, directory: Directory) -> str:
    found = directory.tenant_by_id(tenant)
    return "" if found is None else found.name


def _path(namespace: int, directory: Directory) -> tuple[str, str]:
    found = directory.namespace_by_id(namespace)
    return ("", "") if found is None else (_tenant_name(found.tenant, directory), found.name)
