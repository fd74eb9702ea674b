"""Queries of the inventory: tenants, namespaces, topics by name and id, pages of topics, scopes of subscriptions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from duramen.base.errors import DuramenError, NamespaceNotFound, TenantNotFound, TopicAliasDangling, TopicNotFound
from duramen.coordinators.inventory.dangling import why_dangling
from duramen.coordinators.inventory.pages import PageScan
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.coordinators.inventory.topics import BoundNamespace, FoundTopic, TopicPage
from duramen.inventory.events import NamespacePut, TenantPut
from duramen.inventory.feed import FeedScope, read_follow_token
from duramen.inventory.ids import TopicKey, topic_id, topic_id_bytes, topic_key
from duramen.inventory.names import TopicPath, kafka_path
from duramen.inventory.positions import split_position
from duramen.inventory.reading import TopicName
from duramen.inventory.rows import Place
from duramen.inventory.search import PageToken, TopicQuery

__all__ = ["InventoryQueries"]

T = TypeVar("T")

_ALIASES_SHOWN: Final = 100


class InventoryQueries:
    """What the doors read. A method that raises CoordinatorLoading belongs into a query of `read` or `at_once`."""

    def __init__(self, shards: InventoryShards) -> None:
        self._shards = shards

    @property
    def shards(self) -> InventoryShards:
        """The metadata shards of the inventory."""
        return self._shards

    @property
    def position(self) -> str:
        """The position of the rows that later reads use."""
        return self._shards.position()

    def see(self, position: str, done: Done) -> None:
        """`done` gets None once later reads have rows no older than at a `position` of any node, or an error.

        Raises RequestInvalid.
        """
        self._shards.see(split_position(position), done)

    def see_page(self, token: PageToken, done: Done) -> None:
        """The same for the positions of a page token."""
        self._shards.see(token.positions, done)

    def read(self, query: Callable[[], Any], done: Done) -> None:
        """`done` gets the result of `query`, which uses the methods below and sees the inventory as of one moment.

        It runs again while shards are loading, and if rows are written meanwhile.
        """
        self._shards.read(query, done)

    def at_once(self, query: Callable[[], T]) -> T:
        """The result of `query`, like `read` but now: if rows are written all the time, it may see some of them."""
        return self._shards.at_once(query)

    def as_of(self) -> str | None:
        """In a query: the position of what it sees; None if it may see more."""
        return self._shards.as_of()

    # -- tenants and namespaces ---------------------------------------------------------------------

    def tenant(self, account: str, name: str) -> TenantPut:
        """A tenant. Raises TenantNotFound, CoordinatorLoading."""
        return self._shards.directory().tenant(account, name)

    def may_name(self, account: str, name: str) -> bool:
        """Whether `tenant.namespace.topic` can name a topic of the inventory, existing or not, and names no stream."""
        path = kafka_path(name)
        if path is None or not self._shards.ready:
            return False
        try:
            self.tenant(account, path.tenant)
        except TenantNotFound:
            return False
        except DuramenError:
            return True  # the directory is unknown yet
        return True

    @property
    def is_made(self) -> bool:
        """Whether the inventory exists: the first tenant creates it."""
        return self._shards.ready

    @property
    def id(self) -> UUID:
        """The id of the inventory of this cluster. The inventory must exist."""
        return self._shards.inventory_id

    def namespace(self, account: str, tenant: str, name: str) -> NamespacePut:
        """A namespace. Raises TenantNotFound, NamespaceNotFound, CoordinatorLoading."""
        return self._shards.directory().namespace(account, tenant, name)

    def bound(self, account: str) -> list[BoundNamespace]:
        """Namespaces of an account with subjects. Raises CoordinatorLoading."""
        directory, found = self._shards.directory(), list[BoundNamespace]()
        for namespace in directory.bound():
            tenant = directory.tenant_by_id(namespace.tenant)
            if tenant is not None and tenant.account == account:
                found.append(BoundNamespace(tenant.name, namespace.name, namespace.subjects))
        return found

    def tenants(self, account: str, first: str) -> Iterator[TenantPut]:
        """Tenants ordered by name, from `first` on."""
        return self._shards.directory().tenants(account, first)

    def namespaces(self, tenant: TenantPut, first: str) -> Iterator[NamespacePut]:
        """Namespaces of a tenant ordered by name, from `first` on."""
        return self._shards.directory().namespaces(tenant.id, first)

    def accounts(self) -> list[str]:
        """The accounts that have tenants or policies, by name. Raises CoordinatorLoading."""
        return self._shards.directory().accounts()

    def count_tenants(self, account: str) -> int:
        """The number of tenants of an account. Raises CoordinatorLoading."""
        return self._shards.directory().count_tenants(account)

    def count_namespaces(self, tenant: TenantPut) -> int:
        """The number of namespaces of a tenant. Raises CoordinatorLoading."""
        return self._shards.directory().count_namespaces(tenant.id)

    def count(self, namespace: NamespacePut) -> int:
        """The number of topics in a namespace. Raises CoordinatorLoading."""
        return self._shards.rows().count(namespace.id)

    # -- topics -------------------------------------------------------------------------------------

    def find(self, account: str, path: TopicPath) -> FoundTopic:
        """The topic that a name resolves to.

        Raises TenantNotFound, NamespaceNotFound, TopicNotFound, TopicAliasDangling, CoordinatorLoading.
        """
        namespace, name = self.namespace(account, path.tenant, path.namespace), path.topic.encode(errors="replace")
        rows = self._shards.rows()
        found = rows.find(namespace.id, name)
        if found is None and rows.is_dangling(namespace.id, name):
            raise TopicAliasDangling(why_dangling(path))
        if found is None:
            raise TopicNotFound(f"there is no topic {path}")
        return self._found(path, namespace.id, found)

    def lookup(self, account: str, tenant: str, namespace: str, names: Sequence[str]) -> list[FoundTopic | None]:
        """The topics that names of a namespace resolve to.

        Raises TenantNotFound, NamespaceNotFound, CoordinatorLoading.
        """
        where, rows = self.namespace(account, tenant, namespace), self._shards.rows()
        encoded = [name.encode(errors="replace") for name in names]
        found = [rows.find(where.id, encoded[0])] if len(names) == 1 else rows.find_many(where.id, encoded)
        return [
            None if one is None else self._found(TopicPath(tenant, namespace, name), where.id, one)
            for name, one in zip(names, found, strict=True)
        ]  # fmt: skip

    def lookup_paths(self, account: str, paths: Sequence[TopicPath]) -> list[FoundTopic | None]:
        """The topics that paths resolve to; None if there is no such topic. Raises CoordinatorLoading."""
        names = self._numbered(account, paths)
        found = self._shards.rows().find_all(names) if paths else []
        return [
            None if one is None else self._found(path, number, one)
            for path, (number, _), one in zip(paths, names, found, strict=True)
        ]

    def lookup_ids(self, account: str, paths: Sequence[TopicPath]) -> list[bytes | None]:
        """The lasting ids of the topics that paths resolve to: for many, without an object for each."""
        rows = self._shards.rows().find_rows(self._numbered(account, paths)) if paths else []
        inventory_id = self._shards.inventory_id
        return [None if row is None else topic_id_bytes(inventory_id, row.key) for row in rows]

    def _numbered(self, account: str, paths: Sequence[TopicPath]) -> list[tuple[int, bytes]]:
        """The namespaces and the names of paths; namespace 0 does not exist."""
        directory, numbers = self._shards.directory(), dict[tuple[str, str], int]()
        found = list[tuple[int, bytes]]()
        for tenant, namespace, topic in paths:
            number = numbers.get((tenant, namespace))
            if number is None:
                try:
                    number = directory.namespace(account, tenant, namespace).id
                except (TenantNotFound, NamespaceNotFound):
                    number = 0
                numbers[tenant, namespace] = number
            found.append((number, topic.encode(errors="replace")))
        return found

    def _found(self, path: TopicPath, namespace: int, found: TopicName) -> FoundTopic:
        lasting_id = topic_id(self._shards.inventory_id, found.key)
        own = self._shards.rows().namespace_of(found.key) if found.alias else namespace
        return FoundTopic(path, lasting_id, found.alias, own)

    def by_id(self, lasting_id: UUID) -> FoundTopic:
        """The topic with an id, under its present name. Raises TopicNotFound, CoordinatorLoading."""
        rows = self._shards.rows()
        if self._shards.count:
            key = topic_key(self._shards.inventory_id, lasting_id, self._shards.count)
            place = rows.place(key)
            path = self._path(place)
            if path is not None:
                return FoundTopic(path, lasting_id, alias=False, namespace=place.namespace)
        raise TopicNotFound(f"there is no topic with the id {lasting_id}")

    def aliases(self, found: FoundTopic) -> list[TopicPath]:
        """The first hundred aliases of a topic."""
        rows = self._shards.rows()
        places = rows.aliases(self._key(found), _ALIASES_SHOWN)
        return [path for path in map(self._path, places) if path is not None]

    def _path(self, place: Place) -> TopicPath | None:
        directory = self._shards.directory()
        namespace = directory.namespace_by_id(place.namespace)
        tenant = None if namespace is None else directory.tenant_by_id(namespace.tenant)
        if namespace is None or tenant is None:
            return None
        return TopicPath(tenant.name, namespace.name, place.name.decode())

    def _key(self, found: FoundTopic) -> TopicKey:
        return topic_key(self._shards.inventory_id, found.id, self._shards.count)

    # -- scopes of subscriptions --------------------------------------------------------------------

    def scope(self, account: str, path: Sequence[str], prefix: str = "") -> FeedScope:
        """The scope of a path; `prefix` selects names in a namespace. Raises TenantNotFound …"""
        directory = self._shards.directory()
        if not path:
            return FeedScope(account)
        tenant = directory.tenant(account, path[0])
        if len(path) == 1:
            return FeedScope(account, tenant.id)
        namespace = directory.namespace(account, path[0], path[1])
        topic = self._key(self.find(account, TopicPath(*path))) if len(path) > 2 else None
        return FeedScope(account, tenant.id, namespace.id, prefix.encode(errors="replace"), topic)

    def followed(self, account: str, token: str, prefix: str) -> FeedScope:
        """The scope of a `follow_token`, with its present parents; an entity that is gone has those of the token.

        Raises RequestInvalid, TopicNotFound if there never was such a topic, CoordinatorLoading.
        """
        scope, directory = read_follow_token(account, token, prefix.encode(errors="replace")), self._shards.directory()
        if scope.topic is not None:
            if scope.topic.shard >= self._shards.count:
                raise TopicNotFound("there is no topic with this id")
            place = self._shards.rows().place(scope.topic)
            scope = scope._replace(namespace=place.namespace or scope.namespace)
        namespace = directory.namespace_by_id(scope.namespace)
        return scope if namespace is None else scope._replace(tenant=namespace.tenant)

    def check_followed(self, scope: FeedScope) -> None:
        """Raise TenantNotFound, NamespaceNotFound or TopicNotFound if the entity of a scope is gone."""
        directory = self._shards.directory()
        if scope.tenant and directory.tenant_by_id(scope.tenant) is None:
            raise TenantNotFound("the tenant was deleted")
        if scope.namespace and directory.namespace_by_id(scope.namespace) is None:
            raise NamespaceNotFound("the namespace was deleted")
        if scope.topic is not None and not self._shards.rows().place(scope.topic).namespace:
            raise TopicNotFound("the topic was deleted")

    # -- pages --------------------------------------------------------------------------------------

    def search(
        self, account: str, tenant: str, namespace: str, query: TopicQuery, token: PageToken, limit: int
    ) -> TopicPage:
        """Matching topics and aliases of a namespace, a tenant or the account, ordered by name.

        A page may have fewer than `limit` rows, or none, although others follow: a page scans a few thousand names at
        most. Raises TenantNotFound, NamespaceNotFound, PatternInvalid, CoordinatorLoading.
        """
        scan = PageScan(self._shards.rows(), self._shards.inventory_id if self._shards.ready else None, query, limit)
        for tenant_put, namespace_put in self._scope(account, tenant, namespace, token):
            here = (tenant_put.name, namespace_put.name)
            if not query.has_label(namespace_put.labels, tenant_put.labels):
                if scan.is_over(1):
                    return TopicPage(scan.found, PageToken(*here))
                continue
            first = token.topic if here == (token.tenant, token.namespace) else ""
            stopped = scan.take(*here, namespace_put.id, first)
            if stopped is not None:
                return TopicPage(scan.found, PageToken(*here, stopped))
        return TopicPage(scan.found, None)

    def _scope(
        self, account: str, tenant: str, namespace: str, token: PageToken
    ) -> Iterator[tuple[TenantPut, NamespacePut]]:
        directory = self._shards.directory()
        tenants = [directory.tenant(account, tenant)] if tenant else directory.tenants(account, token.tenant)
        for tenant_put in tenants:
            if namespace:
                yield tenant_put, directory.namespace(account, tenant_put.name, namespace)
                continue
            first = token.namespace if tenant_put.name == token.tenant else ""
            for namespace_put in directory.namespaces(tenant_put.id, first):
                yield tenant_put, namespace_put
