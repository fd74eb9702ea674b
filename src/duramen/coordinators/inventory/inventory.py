"""The inventory as the doors use it: create, find, change and delete tenants, namespaces and topics."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.countdown import Countdown
from duramen.base.errors import (
    DuramenError,
    StorageFailed,
    TopicAliasCycle,
    TopicHasAliases,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.quotas import RateTable
from duramen.coordinators.inventory.changing import Changes
from duramen.coordinators.inventory.dangling import refuse_dangling
from duramen.coordinators.inventory.feed import InventoryFeed
from duramen.coordinators.inventory.gathering import GatheredNames
from duramen.coordinators.inventory.moves import TopicMove, TopicMoves
from duramen.coordinators.inventory.policies import InventoryPolicies
from duramen.coordinators.inventory.queries import InventoryQueries
from duramen.coordinators.inventory.quotas import InventoryQuotas
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.coordinators.inventory.shards import Done, DropRecords, InventoryShards, OwnRecords
from duramen.coordinators.inventory.sweeping import NamespaceSweeps
from duramen.inventory.directory import (
    CreateNamespace,
    CreateTenant,
    DeleteNamespace,
    DeleteTenant,
    DirectoryCommand,
    UpdateNamespace,
    UpdateTenant,
)
from duramen.inventory.events import Labels, NamespacePut, TenantPut
from duramen.inventory.ids import TopicKey
from duramen.inventory.machine import (
    MOST_NAMES,
    BeginChange,
    CreateTopics,
    RemoveAlias,
)
from duramen.inventory.names import NamedProblem, TopicPath, check_topic_name
from duramen.inventory.packing import NAMES_OF_A_BLOCK, SortedNames, sort_names
from duramen.inventory.rows import Place
from duramen.storage.store import Store

__all__ = ["Inventory", "InventoryKit"]

_BLOCKS_AT_ONCE: Final = MOST_NAMES // NAMES_OF_A_BLOCK
_SORTED_AT_ONCE: Final = 1_000  # more are sorted off the event loop
_RESUME_MS: Final = 5_000
_LOADING_MS: Final = 100  # until it is tried again while the shards are loading
_ALIASES_FORGOTTEN: Final = 1000


class InventoryKit(NamedTuple):
    """The dependencies of policies, quotas and subscriptions.

    `ensure_durability` creates the inventory, with room for records of topics with that durability.
    """

    rates: RateTable
    metrics: Metrics
    store: Store
    node_id: int
    ensure_durability: Callable[[str, Done], None]


class Inventory(InventoryQueries):
    """The inventory of a node. `ensure` creates its stream."""

    def __init__(
        self, shards: InventoryShards, clock: Clock, ensure: Callable[[Done], None],
        hidden_by: Callable[[str], DuramenError | None] = lambda _: None, *, kit: InventoryKit,
    ) -> None:  # fmt: skip
        """`hidden_by` returns the reason why a tenant name is refused: its topics would have names of other topics."""
        super().__init__(shards)
        self._hidden_by = hidden_by
        self._clock = clock
        self._ensure = ensure
        self._changes = Changes(shards)
        self.quotas = InventoryQuotas(shards, clock, kit.rates, kit.metrics)
        self.feed = InventoryFeed(shards, kit.store)
        self.policies = InventoryPolicies(shards, clock, self.quotas, kit.ensure_durability, kit.node_id)
        self._sweeps = NamespaceSweeps(shards, self.resume)
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
            self._sweeps.resume()
            self.policies.retention.resume()
        except DuramenError:
            return False
        return True

    def tell_records_by(self, own_records: OwnRecords, drop_records: DropRecords) -> None:
        """`own_records` sets the namespace of a topic's records, and the topic's own retention.

        `drop_records` deletes the records of a deleted topic.
        """
        self._shards.own_records = own_records
        self._shards.drop_records = drop_records

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
        gathered = GatheredNames(len(commands), done, problems)
        for command in commands:
            self._shards.submit(DIRECTORY_SHARD, command, partial(gathered.one, command.name))

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
            created = refuse_dangling(self._shards, namespace, done)
            gathered = GatheredNames(len(commands), created, found.problems, existing)
            for shard, command in commands:
                self._shards.submit(shard, command, partial(gathered.several, command))

        shards = self._shards.count
        if len(names) < _SORTED_AT_ONCE:
            create(sort())
        else:
            self._shards.beside(sort, create)

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
