"""Events of shards for subscribers to an entity or a prefix. Pure.

A scope has keys, and so has an event; the event belongs to a scope if they share one. So waiting subscribers are found
by the event's keys, and an event is examined only by those it concerns.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from duramen.base.catalogue import inventory as levels
from duramen.base.catalogue.inventory import ACCOUNT, NAMESPACE, TENANT, TOPIC
from duramen.base.errors import RequestInvalid
from duramen.inventory import events
from duramen.inventory.directory import Directory
from duramen.inventory.events import InventoryEvent, Policies
from duramen.inventory.ids import LARGEST_SEQUENCE, MOST_SHARDS, TopicKey, topic_id
from duramen.inventory.packing import unpack_names

__all__ = [
    "FeedKey", "FeedScope", "InventoryChange", "NamedTopic", "change_of", "event_keys", "follow_token",
    "read_follow_token", "scope_keys",
]  # fmt: skip

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
    """A change. `tenant` and `namespace` are their present names, and their ids stay; `old` is the previous path.

    Topics are those that were created, moved or deleted, or the one of an alias. `kept_alias`: the previous path of a
    moved topic, in the namespace `old_namespace_id`, is an alias now.
    """

    kind: str
    tenant: str = ""
    namespace: str = ""
    topics: Sequence[NamedTopic] = ()
    old: str = ""
    labels: dict[str, str] | None = None
    policies: Policies | None = None
    tenant_id: int = 0
    namespace_id: int = 0
    subjects: Sequence[str] | None = None
    old_namespace_id: int = 0
    kept_alias: bool = False


_FOLLOWED: Final = re.compile(r"(\d{1,10})(?:\.(\d{1,10})(?:\.(\d{1,8})\.(\d{1,13}))?)?", re.ASCII)


def follow_token(scope: FeedScope) -> str:
    """A scope by its ids, which renames do not change; empty for an account."""
    parts = [scope.tenant, scope.namespace] if scope.namespace else [scope.tenant] if scope.tenant else []
    return ".".join(map(str, (*parts, *(scope.topic or ()))))


def read_follow_token(account: str, token: str, prefix: bytes) -> FeedScope:
    """The scope of a token, with the parents of that time. Raises RequestInvalid."""
    found = _FOLLOWED.fullmatch(token)
    tenant, namespace, shard, sequence = (0, 0, 0, 0) if found is None else (int(part or 0) for part in found.groups())
    if found is None or shard >= MOST_SHARDS or sequence > LARGEST_SEQUENCE:
        raise RequestInvalid(f"{token[:80]!r} is not what `follow` was in a response")
    topic = None if found[3] is None else TopicKey(shard, sequence)
    return FeedScope(account, tenant, namespace, prefix, topic)


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
        case events.TenantPut(renamed=True) | events.NamespacePut(renamed=True):
            return set()  # its `Renamed` follows
        case events.TenantPut(number, account) | events.TenantRemoved(number, account):
            return {(_ITSELF + TENANT, number), (ACCOUNT, account)}
        case events.NamespacePut(number, tenant) | events.NamespaceRemoved(number, tenant):
            return {(_ITSELF + NAMESPACE, number), *_in_tenant(tenant, directory)}
        case events.Renamed(levels.TENANT, number, account):
            return {(_ITSELF + TENANT, number), (ACCOUNT, account)}
        case events.Renamed(_, number, _, tenant):
            # Of the tenant that it leaves, and of the one that it is in now.
            found = directory.namespace_by_id(number)
            now = () if found is None else _in_tenant(found.tenant, directory)
            return {(_ITSELF + NAMESPACE, number), *_in_tenant(tenant, directory), *now}
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
    """The change for subscribers of a scope by an event.

    None if the prefix excludes its names, or if it is about something in a tenant or a namespace that was deleted.
    """
    match event:
        case events.TenantPut(number, _, name, _, labels):
            return InventoryChange("tenant-put", name, labels=labels, tenant_id=number)
        case events.TenantRemoved(number, _, name):
            return InventoryChange("tenant-deleted", name, tenant_id=number)
        case events.NamespacePut(number, tenant, name) | events.NamespaceRemoved(number, tenant, name):
            kind = "namespace-put" if isinstance(event, events.NamespacePut) else "namespace-deleted"
            here = InventoryChange(
                kind, _tenant_name(tenant, directory), name, tenant_id=tenant, namespace_id=number
            )  # fmt: skip
            if isinstance(event, events.NamespacePut):
                here = here._replace(labels=event.labels, subjects=event.subjects)
            return here if here.tenant else None
        case events.Renamed() | events.PoliciesPut():
            return _change_of_entity(event, directory)
        case _:
            return _change_of_topics(event, shard, scope, directory, inventory)


def _change_of_entity(event: events.Renamed | events.PoliciesPut, directory: Directory) -> InventoryChange | None:
    namespace = directory.namespace_by_id(event.id) if event.level == NAMESPACE else None
    tenant = directory.tenant_by_id(event.id) if event.level == TENANT else None
    if namespace is not None:
        here = _in_namespace("namespace-moved", event.id, directory)
    elif tenant is not None:
        here = InventoryChange("tenant-renamed", tenant.name, tenant_id=event.id)
    else:
        here = InventoryChange("policies") if event.level == ACCOUNT else None
    if here is None:
        return None
    if isinstance(event, events.PoliciesPut):
        return here._replace(kind="policies", policies=event.policies)
    if namespace is not None:
        old = f"{_tenant_name(event.tenant, directory)}/{event.name}"
        return here._replace(old=old, labels=namespace.labels, subjects=namespace.subjects)
    return None if tenant is None else here._replace(old=event.name, labels=tenant.labels)


def _change_of_topics(
    event: InventoryEvent, shard: int, scope: FeedScope, directory: Directory, inventory: UUID
) -> InventoryChange | None:
    def topics(found: Iterable[tuple[bytes, int]]) -> list[NamedTopic]:
        return [NamedTopic(name.decode(), topic_id(inventory, TopicKey(shard, sequence))) for name, sequence in found]

    def followed(namespace: int, name: bytes) -> bool:
        here = not scope.namespace or scope.topic is not None or namespace == scope.namespace
        return here and name.startswith(scope.prefix)

    def change(kind: str, namespace: int, found: Iterable[tuple[bytes, int]]) -> InventoryChange | None:
        here = _in_namespace(kind, namespace, directory)
        return None if here is None else here._replace(topics=topics(found))

    match event:
        case events.TopicsCreated(namespace, first, _, body):
            names = [(name, first + at) for at, name in enumerate(unpack_names(body)) if followed(namespace, name)]
            return change("topics-created", namespace, names) if names else None
        case events.TopicPlaced(sequence, namespace, name, _, alias, old_namespace, old_name):
            if not followed(old_namespace, old_name) and (name is None or not followed(namespace, name)):
                return None
            if name is None:
                return change("topic-deleted", old_namespace, [(old_name, sequence)])
            origin = change("topic-deleted", old_namespace, [(old_name, sequence)])
            moved = change("topic-moved", namespace, [(name, sequence)])
            if origin is None:
                return moved
            # In a namespace that was deleted since, the topic is gone; it may have moved on before.
            old = f"{origin.tenant}/{origin.namespace}/{old_name.decode()}"
            return (moved or origin)._replace(
                old=old, old_namespace_id=old_namespace, kept_alias=alias is not None
            )  # fmt: skip
        case events.AliasChanged(sequence, namespace, name, there) if followed(namespace, name):
            return change("alias-created" if there else "alias-deleted", namespace, [(name, sequence)])
        case events.TopicPoliciesPut(sequence, policies, namespace, name) if followed(namespace, name):
            put = change("policies", namespace, [(name, sequence)])
            return None if put is None else put._replace(policies=policies)
        case _:
            return None


def _in_namespace(kind: str, namespace: int, directory: Directory) -> InventoryChange | None:
    """A change in a namespace; None if that was deleted."""
    found = directory.namespace_by_id(namespace)
    if found is None:
        return None
    tenant = _tenant_name(found.tenant, directory)
    return InventoryChange(kind, tenant, found.name, tenant_id=found.tenant, namespace_id=namespace)


def _tenant_name(tenant: int, directory: Directory) -> str:
    found = directory.tenant_by_id(tenant)
    return "" if found is None else found.name
