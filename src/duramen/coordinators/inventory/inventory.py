"""The inventory as the doors use it: create, find, change and delete tenants, namespaces and topics."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from duramen.base.countdown import Countdown
from duramen.base.errors import (
    DuramenError,
    NamespaceNotFound,
    StorageFailed,
    TenantNotFound,
    TopicAliasCycle,
    TopicAliasDangling,
    TopicHasAliases,
    TopicNotFound,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.quotas import RateTable
from duramen.coordinators.inventory.changing import Changes
from duramen.coordinators.inventory.feed import InventoryFeed
from duramen.coordinators.inventory.moves import TopicMove, TopicMoves
from duramen.coordinators.inventory.policies import InventoryPolicies
from duramen.coordinators.inventory.quotas import CreatedNames, InventoryQuotas
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.coordinators.inventory.shards import Done, DropRecords, InventoryShards, OwnRecords
from duramen.inventory.directory import (
    CreateNamespace,
    CreateTenant,
    DeleteNamespace,
    DeleteTenant,
    DirectoryCommand,
    NamespaceIsSwept,
    UpdateNamespace,
    UpdateTenant,
)
from duramen.inventory.events import Labels, NamespacePut, TenantPut
from duramen.inventory.feed import FeedScope, read_follow_token
from duramen.inventory.ids import TopicKey, durability_of_id, topic_id, topic_id_bytes, topic_key
from duramen.inventory.machine import (
    MOST_NAMES,
    BeginChange,
    Created,
    CreateTopics,
    DropNamespace,
    RemoveAlias,
    SweepNamespace,
)
from duramen.inventory.names import NamedProblem, TopicPath, check_topic_name, kafka_path
from duramen.inventory.packing import NAMES_OF_A_BLOCK, SortedNames, sort_names, unpack_names
from duramen.inventory.reading import InventoryRows, TopicName
from duramen.inventory.rows import Place
from duramen.inventory.search import PageToken, TopicQuery, after
from duramen.storage.store import Store

__all__ = ["BoundNamespace", "CreatedNames", "FoundTopic", "Inventory", "TopicMove", "TopicPage"]

T = TypeVar("T")

_BLOCKS_AT_ONCE: Final = MOST_NAMES // NAMES_OF_A_BLOCK
_SORTED_AT_ONCE: Final = 1_000  # more are sorted off the event loop
_RESUME_MS: Final = 5_000
_LOADING_MS: Final = 100  # until it is tried again while the shards are loading
_SCANNED: Final = 2_000
_NAMESPACE_COST: Final = 20  # the start of a namespace costs as much as this many names
_POLICY_COST: Final = 3  # so do a topic's own policies
_ALIASES_SHOWN: Final = 100
_ALIASES_FORGOTTEN: Final = 1000


class FoundTopic(NamedTuple):
    """A name in use: its path, the topic's lasting id, and whether it is an alias.

    `namespace` is that of the topic, which differs from the alias's own.
    """

    path: TopicPath
    id: UUID
    alias: bool
    namespace: int

    @property
    def durability(self) -> str:
        """The durability of the topic's records, chosen at its creation."""
        return durability_of_id(self.id)


class BoundNamespace(NamedTuple):
    """A namespace that is bound to NATS subjects."""

    tenant: str
    name: str
    subjects: tuple[str, ...]


class TopicPage(NamedTuple):
    """Topics ordered by name, and the token of the next page; None: this is the last page."""

    topics: Sequence[FoundTopic]
    token: PageToken | None


class InventoryKit(NamedTuple):
    """The dependencies of policies, quotas and subscriptions.

    `ensure_durability` creates the inventory, with room for records of topics with that durability.
    """

    rates: RateTable
    metrics: Metrics
    store: Store
    node_id: int
    ensure_durability: Callable[[str, Done], None]


class Inventory:
    """The inventory of a node. `ensure` creates its stream."""

    def __init__(
        self, shards: InventoryShards, clock: Clock, ensure: Callable[[Done], None],
        hidden_by: Callable[[str], DuramenError | None] = lambda _: None, *, kit: InventoryKit,
    ) -> None:  # fmt: skip
        """`hidden_by` returns the reason why a tenant name is refused: its topics would have names of other topics."""
        self._shards = shards
        self._hidden_by = hidden_by
        self._clock = clock
        self._ensure = ensure
        self._changes = Changes(shards)
        self.quotas = InventoryQuotas(shards, clock, kit.rates, kit.metrics)
        self.feed = InventoryFeed(shards, kit.store)
        self.policies = InventoryPolicies(shards, clock, self.quotas, kit.ensure_durability, kit.node_id)
        self._sweeping = False
        self._ticks = False
        self.when_bound: Callable[[Callable[[], None]], None] | None = None
        """Set by a door that subscribes to subjects of namespaces: it calls its argument once it has subscribed."""

    def start(self) -> None:
        """Resume interrupted changes periodically, once the inventory exists."""
        if self._shards.ready and not self._ticks:
            self._ticks = True
            self._tick()

    def _tick(self) -> None:
        self._shards.later(_RESUME_MS if self.resume() else _LOADING_MS, self._tick)

    def resume(self) -> bool:
        """Resume interrupted changes; returns whether the shards are loaded, which that needs."""
        if not self._shards.ready:
            return False
        try:
            self._changes.resume()
            self._sweep()
            self.policies.retention.resume()
        except DuramenError:
            return False
        return True

    @property
    def shards(self) -> InventoryShards:
        """The metadata shards of the inventory."""
        return self._shards

    def tell_records_by(self, own_records: OwnRecords, drop_records: DropRecords) -> None:
        """`own_records` sets the namespace of a topic's records, and the topic's own retention.

        `drop_records` deletes the records of a deleted topic.
        """
        self._shards.own_records = own_records
        self._shards.drop_records = drop_records

    @property
    def position(self) -> str:
        """The position of the rows that later reads use."""
        return self._shards.position()

    def see(self, position: str) -> None:
        """From now on read rows no older than those at a `position`, of any node of the cluster."""
        self._shards.see(position)

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

    def create_tenants(self, account: str, names: Sequence[str], labels: Labels, done: Done) -> None:
        """Create tenants; `done` gets `CreatedNames`. Existing tenants stay as they are."""
        now_ms = self._clock.wall_ms()

        def ensured(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self.start()
                refused = {name: error for name in names if (error := self._hidden_by(name)) is not None}
                problems = [NamedProblem(name, error) for name, error in refused.items()]
                new = [CreateTenant(account, name, labels, now_ms) for name in names if name not in refused]
                self._create(new, done, problems)

        self._ensure(ensured)

    def create_namespaces(self, account: str, tenant: str, names: Sequence[str], labels: Labels, done: Done) -> None:
        """Create namespaces of a tenant; `done` gets `CreatedNames`, TenantNotFound."""
        now_ms = self._clock.wall_ms()

        def found(answer: TenantPut | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            else:
                self._create([CreateNamespace(answer.id, name, labels, now_ms) for name in names], done)

        self.read(lambda: self.tenant(account, tenant), found)

    def _create(
        self, commands: Sequence[CreateTenant | CreateNamespace], done: Done, problems: Sequence[NamedProblem] = ()
    ) -> None:
        gathered = _Gathered(len(commands), done, problems)
        for command in commands:
            self._shards.submit(DIRECTORY_SHARD, command, partial(gathered.one, command.name))

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

    def change(self, command: DirectoryCommand, done: Done) -> None:
        """Update or delete a tenant or a namespace."""
        hidden = self._hidden_by(command.name) if isinstance(command, UpdateTenant) and command.name else None
        if hidden is not None:
            done(hidden)
            return

        def answered(answer: object) -> None:
            if self.when_bound is None:
                done(answer)
            else:
                self.when_bound(lambda: done(answer))
            if isinstance(command, DeleteTenant | DeleteNamespace):
                self.resume()

        self._submit_change(command, answered)

    def _submit_change(self, command: DirectoryCommand, done: Done) -> None:
        go = partial(self._shards.submit, DIRECTORY_SHARD, command)
        if isinstance(command, UpdateNamespace):
            self.quotas.move_namespace(command.namespace, command.to_tenant, go, done)
        else:
            go(done)

    def count(self, namespace: NamespacePut) -> int:
        """The number of topics in a namespace. Raises CoordinatorLoading."""
        return self._shards.rows().count(namespace.id)

    # -- removed namespaces -------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Delete the rows of one deleted namespace in all shards; then those of the next."""
        removed = next(iter(self._shards.directory().removed), None)
        if removed is None or self._sweeping:
            return
        self._sweeping = True
        self._sweep_shard(removed, 0, DropNamespace(removed))

    def _sweep_shard(self, namespace: int, shard: int, command: DropNamespace | SweepNamespace) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, DuramenError):
                self._sweeping = False  # the sweep is resumed later
            elif answer is None or answer is True:
                self._sweep_shard(namespace, shard, SweepNamespace(namespace))
            elif shard + 1 < self._shards.count:
                self._sweep_shard(namespace, shard + 1, DropNamespace(namespace))
            else:
                self._shards.submit(DIRECTORY_SHARD, NamespaceIsSwept(namespace), self._swept)

        self._shards.submit(shard, command, answered)

    def _swept(self, _: object) -> None:
        self._sweeping = False
        self.resume()

    # -- topics -------------------------------------------------------------------------------------

    def create_topics(self, namespace: NamespacePut, names: Sequence[str], done: Done) -> None:
        """Create topics; `done` gets `CreatedNames`. Existing topics and aliases stay."""
        self.quotas.create(namespace.id, names, partial(self._create_topics, namespace), done)

    def _create_topics(self, namespace: NamespacePut, names: Sequence[str], done: Done) -> None:
        def sort() -> SortedNames:
            return sort_names(names, namespace.id, shards)

        def create(found: SortedNames | BaseException) -> None:
            if isinstance(found, BaseException):
                done(StorageFailed(f"the names cannot be sorted: {found!r}"))
                return
            durability = self.policies.durability_of_new(namespace.id)
            commands = [
                (shard, CreateTopics(namespace.id, blocks[at : at + _BLOCKS_AT_ONCE], durability))
                for shard, blocks in enumerate(found.blocks)
                for at in range(0, len(blocks), _BLOCKS_AT_ONCE)
            ]
            existing = len(names) - found.total - len(found.problems)
            gathered = _Gathered(len(commands), done, found.problems, existing)
            for shard, command in commands:
                self._shards.submit(shard, command, partial(gathered.several, command))

        shards = self._shards.count
        if len(names) < _SORTED_AT_ONCE:
            create(sort())
        else:
            self._shards.beside(sort, create)

    def find(self, account: str, path: TopicPath) -> FoundTopic:
        """The topic that a name resolves to.

        Raises TenantNotFound, NamespaceNotFound, TopicNotFound, TopicAliasDangling, CoordinatorLoading.
        """
        namespace, name = self.namespace(account, path.tenant, path.namespace), path.topic.encode(errors="replace")
        rows = self._shards.rows()
        found = rows.find(namespace.id, name)
        if found is None and rows.is_dangling(namespace.id, name):
            raise TopicAliasDangling(f"{path} is an alias of a topic that was deleted with its namespace")
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

    def move_topic(self, account: str, path: TopicPath, to: TopicPath, done: Done, *, keep_alias: bool) -> None:
        """Rename a topic, in its namespace or to another one; with `keep_alias` the old name becomes an alias."""
        self._moves(account).move(TopicMove(path, to, keep_alias), done)

    def move_topics(self, account: str, moves: Sequence[TopicMove], done: Done) -> None:
        """Move topics independently and concurrently; `done` gets the failed ones, as `NamedProblem`."""
        self._moves(account).move_all(moves, done)

    def _moves(self, account: str) -> TopicMoves:
        return TopicMoves(self._shards, self._changes, self.quotas, account)

    def delete_topic(self, account: str, path: TopicPath, done: Done) -> None:
        """Delete a topic, or an alias. Fails with TopicHasAliases if the topic has some."""

        def ended(error: DuramenError | None) -> None:
            if isinstance(error, TopicHasAliases):
                self._forget_aliases(account, path, error, done)
            else:
                done(error)

        self._delete(account, path, ended)  # also an alias without a topic

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

    def _delete(self, account: str, path: TopicPath, done: Done) -> None:
        def found(answer: BeginChange | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            else:
                self._changes.begin(answer, done)

        def begin() -> BeginChange:
            namespace = self.namespace(account, path.tenant, path.namespace)
            return BeginChange(namespace.id, path.topic.encode(errors="replace"), "delete")

        self.read(begin, found)

    def _forget_aliases(self, account: str, path: TopicPath, error: DuramenError, done: Done) -> None:
        """Delete a topic whose aliases were all in deleted namespaces: its shard has not been told of them."""

        def lost() -> tuple[TopicKey, list[Place]]:
            key = self._key(self.find(account, path))
            places = self._shards.rows().aliases(key, _ALIASES_FORGOTTEN)
            gone = [place for place in places if self._path(place) is None]
            if len(gone) < len(places) or not gone:
                raise error
            return key, gone

        def forget(answer: tuple[TopicKey, list[Place]] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
                return
            key, places = answer
            parts = Countdown(partial(self._delete, account, path, done), len(places))
            for place in places:
                self._shards.submit(key.shard, RemoveAlias(key.sequence, *place), lambda _: parts.count_down())

        self.read(lost, forget)

    def alias(self, account: str, path: TopicPath, target: TopicPath, done: Done) -> None:
        """Create an alias of the topic that another name resolves to. Fails with TopicAliasCycle."""

        def found(answer: tuple[Place, TopicKey] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            else:
                self._changes.alias(*answer, done)

        def begin() -> tuple[Place, TopicKey]:
            if path == target:
                raise TopicAliasCycle(f"the alias {path} would lead to itself")
            place = Place(self.namespace(account, path.tenant, path.namespace).id, check_topic_name(path.topic))
            return place, self._key(self.find(account, target))

        self.read(begin, found)

    # -- pages --------------------------------------------------------------------------------------

    def search(
        self, account: str, tenant: str, namespace: str, query: TopicQuery, token: PageToken, limit: int
    ) -> TopicPage:
        """Matching topics and aliases of a namespace, a tenant or the account, ordered by name.

        A page may have fewer than `limit` rows, or none, although others follow: a page scans a few thousand names at
        most. Raises TenantNotFound, NamespaceNotFound, PatternInvalid, CoordinatorLoading.
        """
        scan = _Scan(self._shards.rows(), self._shards.inventory_id if self._shards.ready else None, query, limit)
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


class _Scan:
    """The scan of names for one page."""

    def __init__(self, rows: InventoryRows, inventory_id: UUID | None, query: TopicQuery, limit: int) -> None:
        self._rows = rows
        self._inventory_id = inventory_id
        self._first, self._end = query.bounds()
        self._matches = query.matcher()
        self._query = query
        self._cost = 1 + _POLICY_COST * bool(query.policy)
        self._limit = limit
        self._left = _SCANNED
        self.found = list[FoundTopic]()

    def take(self, tenant: str, namespace: str, number: int, behind: str) -> str | None:
        """Scan a namespace after a name; returns the last scanned name if the page ends in this namespace."""
        first = max(self._first, after(behind.encode()) if behind else b"")
        if self.is_over(_NAMESPACE_COST):
            return behind
        if self._end is not None and first >= self._end:
            return None
        for name, value, shard in self._rows.names(number, first, self._end):
            text = name.decode()
            matches = self._matches is None or self._matches(text)
            if matches:
                topic = self._rows.counted(number, name, value, shard)
                if topic is not None and self._query.takes(topic.key, self._rows.policies, alias=topic.alias):
                    lasting_id = topic_id(self._inventory_id, topic.key)  # type: ignore[arg-type]
                    own = self._rows.namespace_of(topic.key) if topic.alias else number
                    self.found.append(FoundTopic(TopicPath(tenant, namespace, text), lasting_id, topic.alias, own))
            if self.is_over(self._cost if matches else 1) or len(self.found) == self._limit:
                return text
        return None

    def is_over(self, cost: int) -> bool:
        """Spend a part of what a page may cost; whether that was the rest."""
        self._left -= cost
        return self._left <= 0


class _Gathered:
    """Collects the responses to commands that create entries."""

    def __init__(self, left: int, done: Done, problems: Sequence[NamedProblem] = (), existing: int = 0) -> None:
        self._left = left
        self._done = done
        self._problems = list(problems)
        self._created, self._existing = 0, existing
        if not left:
            self._end()

    def one(self, name: str, answer: tuple[object, bool] | DuramenError) -> None:
        """The response about one name."""
        if isinstance(answer, DuramenError):
            self._problems.append(NamedProblem(name, answer))
        elif answer[1]:
            self._created += 1
        else:
            self._existing += 1
        self._answered()

    def several(self, command: CreateTopics, answer: Created | DuramenError) -> None:
        """The response about names of one shard."""
        if isinstance(answer, DuramenError):
            names = (name for block in command.blocks for name in unpack_names(block.body))
            self._problems += [NamedProblem(name.decode(), answer) for name in names]
        else:
            self._created += answer.new
            self._existing += answer.existing
        self._answered()

    def _answered(self) -> None:
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._done(CreatedNames(self._created, self._existing, self._problems))
