"""The inventory: create, list, search, rename, move and delete tenants, namespaces and topics."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from duramen.base import errors
from duramen.base.errors import TopicNotFound
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.doors.completion import completion
from duramen.doors.http.accounts import PartGroups, account_of, count_topics, part_page, see_position
from duramen.doors.http.bulk import create_all
from duramen.doors.http.completions import call_back
from duramen.doors.http.moves import MOVE_ROWS, move_all, path_after
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster
from duramen.doors.http.serving.rows import NAME_ROWS, BodyRows
from duramen.doors.http.types.inventory import (
    AccountQuery,
    AliasRequest,
    CreatedInfo,
    LookupRequest,
    MovedInfo,
    NamespaceChange,
    NamespaceInfo,
    NamespaceList,
    NamesRequest,
    PartsQuery,
    Position,
    PositionQuery,
    TenantChange,
    TenantInfo,
    TenantList,
    TopicChange,
    TopicInfo,
    TopicList,
    TopicMoveRequest,
    TopicMovesRequest,
    TopicNames,
    TopicPathInfo,
    TopicsFound,
    TopicsQuery,
)
from duramen.inventory.directory import DeleteNamespace, DeleteTenant, UpdateNamespace, UpdateTenant
from duramen.inventory.events import Labels, NamespacePut, TenantPut
from duramen.inventory.names import TopicPath
from duramen.inventory.search import PageToken, TopicQuery, check_query, page_token, read_token
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

T = TypeVar("T")

_LARGEST_BODY_BYTES: Final = 8 << 20
_SCANS: Final = 5  # of a few thousand names each, for one page


def _inventory(call: Call) -> Inventory:
    return call.broker.inventory


async def _read(call: Call, query: Callable[[], T]) -> T:
    return await call_back(lambda done: _inventory(call).read(query, done))


def _path(call: Call) -> TopicPath:
    return TopicPath(call.path["tenant"], call.path["namespace"], call.path["name"])


# -- tenants ----------------------------------------------------------------------------------------


def _tenant(call: Call, tenant: TenantPut) -> TenantInfo:
    inventory = _inventory(call)
    return TenantInfo(
        tenant.account, tenant.name, tenant.created_ms, tenant.labels, inventory.count_namespaces(tenant),
        inventory.position,
    )  # fmt: skip


async def _list_tenants(call: Call, query: PartsQuery) -> TenantList:
    account, inventory = await account_of(call, query), _inventory(call)

    def read() -> TenantList:
        groups = [("", partial(inventory.tenants, account))]
        page, following = part_page(lambda _: groups, _name, _labels, query, f"{account}/", query.label)
        return TenantList([_tenant(call, one) for one in page], following, inventory.position)

    return await _read(call, read)


async def _create_tenants(call: Call, query: AccountQuery, body: NamesRequest | BodyRows[str]) -> CreatedInfo:
    account = await account_of(call, query)
    names, labels = _names_and_labels(body)
    return await create_all(
        call, names, lambda some, done: _inventory(call).create_tenants(account, some, labels, done)
    )


def _names_and_labels(body: NamesRequest | BodyRows[str]) -> tuple[Sequence[str] | BodyRows[str], dict[str, str]]:
    return (body, {}) if isinstance(body, BodyRows) else (body.names, body.labels)


async def _found_tenant(call: Call, query: AccountQuery) -> TenantPut:
    account = await account_of(call, query)
    return await _read(call, lambda: _inventory(call).tenant(account, call.path["tenant"]))


def _name(part: TenantPut | NamespacePut) -> str:
    return part.name


def _labels(part: TenantPut | NamespacePut) -> Labels:
    return part.labels


async def _show_tenant(call: Call, query: AccountQuery) -> TenantInfo:
    account, inventory = await account_of(call, query), _inventory(call)

    def read() -> tuple[TenantInfo, list[NamespacePut]]:
        tenant = inventory.tenant(account, call.path["tenant"])
        return _tenant(call, tenant), [*inventory.namespaces(tenant, "")]

    info, namespaces = await _read(call, read)
    info.topics = await count_topics(call, namespaces)
    return info


async def _change_tenant(call: Call, query: AccountQuery, body: TenantChange) -> TenantInfo:
    tenant = await _found_tenant(call, query)
    command = UpdateTenant(tenant.id, tenant.account, body.name, body.labels)
    changed: TenantPut = await call_back(lambda done: _inventory(call).change(command, done))
    return await _read(call, lambda: _tenant(call, changed))


async def _delete_tenant(call: Call, query: AccountQuery) -> Position:
    command = DeleteTenant((await _found_tenant(call, query)).id)
    await call_back(lambda done: _inventory(call).change(command, done))
    return Position(_inventory(call).position)


# -- namespaces -------------------------------------------------------------------------------------


def _namespace(call: Call, tenant: str, namespace: NamespacePut) -> NamespaceInfo:
    inventory = _inventory(call)
    return NamespaceInfo(
        tenant, namespace.name, inventory.count(namespace), namespace.created_ms, namespace.labels,
        [*namespace.subjects], inventory.position,
    )  # fmt: skip


async def _list_namespaces(call: Call, query: PartsQuery) -> NamespaceList:
    account, inventory = await account_of(call, query), _inventory(call)

    def read() -> NamespaceList:
        tenant = inventory.tenant(account, call.path["tenant"])
        groups, scope = [(tenant.name, partial(inventory.namespaces, tenant))], f"{account}/{tenant.id}/"
        page, following = part_page(lambda _: groups, _name, _labels, query, scope, query.label)
        found = [_namespace(call, tenant.name, one) for one in page]
        return NamespaceList(found, following, inventory.position)

    return await _read(call, read)


async def _search_namespaces(call: Call, query: PartsQuery) -> NamespaceList:
    account, inventory = await account_of(call, query), _inventory(call)

    def groups(first: str) -> PartGroups[NamespacePut]:
        return ((one.name, partial(inventory.namespaces, one)) for one in inventory.tenants(account, first))

    def read() -> NamespaceList:
        page, following = part_page(groups, _name, _labels, query, f"{account}//", query.label)
        tenants = {one.id: one.name for one in inventory.tenants(account, "")} if page else {}
        found = [_namespace(call, tenants[one.tenant], one) for one in page]
        return NamespaceList(found, following, inventory.position)

    return await _read(call, read)


async def _create_namespaces(call: Call, query: AccountQuery, body: NamesRequest | BodyRows[str]) -> CreatedInfo:
    account, tenant = await account_of(call, query), call.path["tenant"]
    names, labels = _names_and_labels(body)
    return await create_all(
        call, names, lambda some, done: _inventory(call).create_namespaces(account, tenant, some, labels, done)
    )


async def _found_namespace(call: Call, query: AccountQuery) -> NamespacePut:
    account, inventory = await account_of(call, query), _inventory(call)
    return await _read(call, lambda: inventory.namespace(account, call.path["tenant"], call.path["namespace"]))


async def _show_namespace(call: Call, query: AccountQuery) -> NamespaceInfo:
    account, inventory, tenant = await account_of(call, query), _inventory(call), call.path["tenant"]
    return await _read(
        call, lambda: _namespace(call, tenant, inventory.namespace(account, tenant, call.path["namespace"]))
    )


async def _change_namespace(call: Call, query: AccountQuery, body: NamespaceChange) -> NamespaceInfo:
    account, inventory = await account_of(call, query), _inventory(call)
    namespace = await _found_namespace(call, query)
    tenant = call.path["tenant"] if body.tenant is None else body.tenant
    to = await _read(call, lambda: inventory.tenant(account, tenant))
    subjects = None if body.subjects is None else tuple(body.subjects)
    command = UpdateNamespace(namespace.id, to.id, body.name, body.labels, subjects)
    changed: NamespacePut = await call_back(lambda done: inventory.change(command, done))
    return await _read(call, lambda: _namespace(call, to.name, changed))


async def _delete_namespace(call: Call, query: AccountQuery) -> Position:
    command = DeleteNamespace((await _found_namespace(call, query)).id)
    await call_back(lambda done: _inventory(call).change(command, done))
    return Position(_inventory(call).position)


# -- topics -----------------------------------------------------------------------------------------


def _path_info(path: TopicPath) -> TopicPathInfo:
    return TopicPathInfo(*path)


def _topic(found: FoundTopic) -> TopicInfo:
    return TopicInfo(*found.path, found.id, found.alias)


def _described(call: Call, found: FoundTopic) -> TopicInfo:
    inventory, info = _inventory(call), _topic(found)
    info.position = inventory.position
    info.aliases = [_path_info(path) for path in inventory.aliases(found)]
    info.durability = found.durability
    if found.alias:
        info.topic = _path_info(inventory.by_id(found.id).path)
    return info


async def _create_topics(call: Call, query: AccountQuery, body: TopicNames | BodyRows[str]) -> CreatedInfo:
    namespace, names = await _found_namespace(call, query), body if isinstance(body, BodyRows) else body.names
    return await create_all(call, names, partial(_inventory(call).create_topics, namespace))


async def _lookup(call: Call, query: AccountQuery, body: LookupRequest) -> TopicsFound:
    account, inventory, (tenant, namespace) = await account_of(call, query), _inventory(call), _where(call)

    def read() -> TopicsFound:
        found = inventory.lookup(account, tenant, namespace, body.names)
        return TopicsFound([None if one is None else _topic(one) for one in found], inventory.position)

    return await _read(call, read)


def _where(call: Call) -> tuple[str, str]:
    return call.path["tenant"], call.path["namespace"]


async def _show_topic(call: Call, query: AccountQuery) -> TopicInfo:
    account, inventory = await account_of(call, query), _inventory(call)
    return await _read(call, lambda: _described(call, inventory.find(account, _path(call))))


async def _show_topic_by_id(call: Call, query: PositionQuery) -> TopicInfo:
    await see_position(call, query.position)
    try:
        lasting_id = UUID(call.path["id"])
    except ValueError:
        raise TopicNotFound(f"there is no topic with the id {call.path['id'][:40]}") from None
    return await _read(call, lambda: _described(call, _inventory(call).by_id(lasting_id)))


async def _change_topic(call: Call, query: AccountQuery, body: TopicChange) -> TopicInfo:
    account, inventory, path = await account_of(call, query), _inventory(call), _path(call)
    to = path_after(path, body)
    await call_back(lambda done: inventory.move_topic(account, path, to, done, keep_alias=body.keep_alias))
    return await _read(call, lambda: _described(call, inventory.find(account, to)))


async def _move_topics(
    call: Call, query: AccountQuery, body: TopicMovesRequest | BodyRows[TopicMoveRequest]
) -> MovedInfo:  # fmt: skip
    account = await account_of(call, query)
    await _found_namespace(call, query)
    return await move_all(call, account, _where(call), body if isinstance(body, BodyRows) else body.moves)


async def _delete_topic(call: Call, query: AccountQuery) -> Position:
    account, inventory = await account_of(call, query), _inventory(call)
    await call_back(lambda done: inventory.delete_topic(account, _path(call), done))
    return Position(inventory.position)


async def _alias(call: Call, query: AccountQuery, body: AliasRequest) -> TopicInfo:
    account, inventory, path = await account_of(call, query), _inventory(call), TopicPath(*_where(call), body.name)
    target = TopicPath(body.topic.tenant, body.topic.namespace, body.topic.name)
    await call_back(lambda done: inventory.alias(account, path, target, done))
    return await _read(call, lambda: _described(call, inventory.find(account, path)))


async def _search(call: Call, query: TopicsQuery) -> TopicList:
    account, inventory = await account_of(call, query), _inventory(call)
    wanted = TopicQuery(
        query.prefix,
        query.glob,
        query.pattern,
        query.label,
        query.kind or "",
        query.durability or "",
        query.policy,
    )
    check_query(wanted)
    scope = f"{account}/{query.tenant}/{query.namespace}"
    if query.namespace and not query.tenant:
        raise errors.RequestInvalid("a namespace is given without its tenant")
    begin = read_token(query.after, scope, wanted)
    await completion(partial(inventory.see_page, begin))
    token: PageToken | None = begin
    found, scans, position = list[TopicInfo](), 0, ""
    while token is not None and len(found) < query.limit and scans < _SCANS:
        await asyncio.sleep(0)
        scans += 1
        left = query.limit - len(found)
        search = partial(inventory.search, account, query.tenant, query.namespace, wanted, token, left)
        page, here, as_of = await _read(
            call, lambda search=search: (search(), inventory.position, inventory.as_of())  # type: ignore[misc]
        )  # fmt: skip
        if scans > 1 and as_of != position:
            break  # a topic that was moved since may be in both scans, or in none
        position = here
        found += map(_topic, page.topics)
        token = page.token
        if as_of is None:
            break
    following = None if token is None else page_token(scope, wanted, token)
    return TopicList(found, following, position or inventory.position)


_READING: Final = (errors.CoordinatorLoading, errors.NotCoordinator, errors.RequestInvalid, errors.StateDamaged)
_WRITING: Final = (
    *_READING, errors.NodeStopping, errors.StorageFailed, errors.StorageFull, errors.OutcomeUnknown,
    errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend,
)  # fmt: skip
_TENANT: Final = (errors.TenantNotFound,)
_NAMESPACE: Final = (*_TENANT, errors.NamespaceNotFound)
_TOPIC: Final = (*_NAMESPACE, errors.TopicNotFound)
_NAMING: Final = (errors.InventoryNameInvalid,)
_SEARCHING: Final = (errors.GlobInvalid, errors.PatternInvalid, errors.PageTokenInvalid)
_CHANGING: Final = (*_WRITING, *_TOPIC, errors.TopicBusy)

_SHOWN: Final = on_cluster(Operation.DESCRIBE)
_MADE: Final = on_cluster(Operation.CREATE)
_CHANGED: Final = on_cluster(Operation.ALTER)


def _largest(_: Call) -> int:
    return _LARGEST_BODY_BYTES


ROUTES = (
    HttpRoute(
        "GET", "/v1/tenants", _list_tenants, _SHOWN, "Search tenants by prefix, glob, pattern or label, page by page",
        (*_READING, *_SEARCHING),
    ),
    HttpRoute(
        "POST", "/v1/tenants", _create_tenants, _MADE,
        "Create tenants; existing ones stay unchanged, and the response lists those that failed",
        _WRITING, body_limit_bytes=_largest, rows=NAME_ROWS,
    ),
    HttpRoute(
        "GET", "/v1/tenants/{tenant}", _show_tenant, _SHOWN, "One tenant and its numbers of namespaces and topics",
        (*_READING, *_TENANT),
    ),
    HttpRoute(
        "PATCH", "/v1/tenants/{tenant}", _change_tenant, _CHANGED, "Change the name or the labels of a tenant",
        (*_WRITING, *_TENANT, *_NAMING, errors.TenantExists),
    ),
    HttpRoute(
        "DELETE", "/v1/tenants/{tenant}", _delete_tenant, _CHANGED,
        "Delete a tenant with all its namespaces and topics, at once for readers; their rows are removed soon after",
        (*_WRITING, *_TENANT),
    ),
    HttpRoute(
        "GET", "/v1/tenants/{tenant}/namespaces", _list_namespaces, _SHOWN,
        "Search namespaces of a tenant by prefix, glob, pattern or label, page by page",
        (*_READING, *_TENANT, *_SEARCHING),
    ),
    HttpRoute(
        "GET", "/v1/namespaces", _search_namespaces, _SHOWN,
        "Search namespaces of all tenants by prefix, glob, pattern or label, page by page", (*_READING, *_SEARCHING),
    ),
    HttpRoute(
        "POST", "/v1/tenants/{tenant}/namespaces", _create_namespaces, _MADE,
        "Create namespaces; existing ones stay unchanged, and the response lists those that failed",
        (*_WRITING, *_TENANT), body_limit_bytes=_largest, rows=NAME_ROWS,
    ),
    HttpRoute(
        "GET", "/v1/tenants/{tenant}/namespaces/{namespace}", _show_namespace, _SHOWN,
        "One namespace and its number of topics", (*_READING, *_NAMESPACE),
    ),
    HttpRoute(
        "PATCH", "/v1/tenants/{tenant}/namespaces/{namespace}", _change_namespace, _CHANGED,
        "Change the name, the tenant, the labels or the NATS subjects of a namespace",
        (*_WRITING, *_NAMESPACE, *_NAMING, errors.NamespaceExists, errors.SubjectInvalid),
    ),
    HttpRoute(
        "DELETE", "/v1/tenants/{tenant}/namespaces/{namespace}", _delete_namespace, _CHANGED,
        "Delete a namespace with all its topics, at once for readers; their rows are removed soon after",
        (*_WRITING, *_NAMESPACE),
    ),
    HttpRoute(
        "POST", "/v1/tenants/{tenant}/namespaces/{namespace}/topics", _create_topics, _MADE,
        "Create topics; existing ones stay unchanged, and the response lists those that failed",
        (*_WRITING, *_NAMESPACE), body_limit_bytes=_largest, rows=NAME_ROWS,
    ),
    HttpRoute(
        "POST", "/v1/tenants/{tenant}/namespaces/{namespace}/lookup", _lookup, _SHOWN,
        "Look up names of a namespace: the topic of each", (*_READING, *_NAMESPACE),
    ),
    HttpRoute(
        "POST", "/v1/tenants/{tenant}/namespaces/{namespace}/moves", _move_topics, _CHANGED,
        "Rename topics, or move them to other namespaces; ids stay, and the response lists those that failed",
        (*_WRITING, *_NAMESPACE), body_limit_bytes=_largest, rows=MOVE_ROWS,
    ),
    HttpRoute(
        "POST", "/v1/tenants/{tenant}/namespaces/{namespace}/aliases", _alias, _MADE,
        "Create an alias of a topic",
        (*_CHANGING, *_NAMING, errors.TopicAliasCycle, errors.TopicAliasDangling, errors.TopicExists),
    ),
    HttpRoute(
        "GET", "/v1/tenants/{tenant}/namespaces/{namespace}/topics/{name:any}", _show_topic, _SHOWN,
        "One topic, by its name or by an alias", (*_READING, *_TOPIC, errors.TopicAliasDangling),
    ),
    HttpRoute(
        "PATCH", "/v1/tenants/{tenant}/namespaces/{namespace}/topics/{name:any}", _change_topic, _CHANGED,
        "Rename a topic or move it to another namespace; its id stays",
        (*_CHANGING, *_NAMING, errors.TopicExists, errors.TopicIsAlias),
    ),
    HttpRoute(
        "DELETE", "/v1/tenants/{tenant}/namespaces/{namespace}/topics/{name:any}", _delete_topic, _CHANGED,
        "Delete a topic that has no aliases, or an alias",
        (*_CHANGING, errors.TopicHasAliases),
    ),
    HttpRoute(
        "GET", "/v1/topics", _search, _SHOWN,
        "Search the topics of a namespace, a tenant or an account by prefix, glob or pattern, page by page",
        (*_READING, *_NAMESPACE, *_SEARCHING),
    ),
    HttpRoute(
        "GET", "/v1/topics/{id}", _show_topic_by_id, _SHOWN, "The topic with an id, and its present name",
        (*_READING, errors.TopicNotFound),
    ),
)  # fmt: skip
