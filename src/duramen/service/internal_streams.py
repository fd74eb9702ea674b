"""Internal streams for groups, transactions, shares, leases and the inventory: created when first needed."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from duramen.base.catalogue.inventory import DURABILITY
from duramen.base.catalogue.queues import KIND, QUEUES
from duramen.base.errors import DuramenError
from duramen.base.settings import Settings
from duramen.codec.exports import SYNC
from duramen.coordinators.group.offsets import OFFSETS_CONFIG, OFFSETS_STREAM
from duramen.coordinators.inventory.shard import INVENTORY_CONFIG, INVENTORY_STREAM, QUEUE_SPACES
from duramen.coordinators.lease.records import LEASES_CONFIG, LEASES_STREAM
from duramen.coordinators.share.state import SHARE_STATE_CONFIG, SHARE_STATE_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
from duramen.metadata.decisions import Definition

__all__ = ["InternalStreams"]

Done = Callable[[DuramenError | None], None]


class _Keeper(Protocol):
    @property
    def ready(self) -> bool:
        """Whether it has the stream that it keeps things in."""


class _InventoryKeeper(_Keeper, Protocol):
    @property
    def queues(self) -> Mapping[str, _Keeper]:
        """The streams with the records of topics, by durability."""


class _Create(Protocol):
    def __call__(self, definition: Definition, done: Done, *, idempotent: bool) -> None:
        """Create a stream."""


class InternalStreams:
    """Creates each internal stream when it is first needed."""

    def __init__(
        self, create: _Create, settings: Settings, offsets: _Keeper, transactions: _Keeper, shares: _Keeper,
        leases: _Keeper, inventory: _InventoryKeeper, when_loaded: Callable[[str, Done], None],
    ) -> None:  # fmt: skip
        """The users of offsets, transactions, share group state, leases and the inventory report when they are `ready`.

        `when_loaded` reports when the content of a stream can be used here.
        """
        self._create = create
        self._settings = settings
        self._offsets = offsets
        self._transactions = transactions
        self._shares = shares
        self._leases = leases
        self._inventory = inventory
        self._when_loaded = when_loaded
        self._waiting: dict[str, deque[Done]] = {}  # for the streams that are being made

    def ensure_offsets(self, done: Done) -> None:
        """See to it that groups have somewhere to be stored."""
        self._ensure(self._offsets, OFFSETS_STREAM, self._size("offsets.topic.num.partitions"), OFFSETS_CONFIG, done)

    def ensure_transactions(self, done: Done) -> None:
        """See to it that transactions have somewhere to be stored."""
        config = {
            "cleanup.policy": "compact",
            "durability": "sync",
            "segment.bytes": str(self._settings.integer("transaction.state.log.segment.bytes")),
        }
        partitions = self._size("transaction.state.log.num.partitions")
        self._ensure(self._transactions, TRANSACTIONS_STREAM, partitions, config, done)

    def ensure_shares(self, done: Done) -> None:
        """Create the streams of share groups: their metadata, and their delivery states."""

        def ready(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._ensure_states(done)

        self.ensure_offsets(ready)

    def _ensure_states(self, done: Done) -> None:
        partitions = self._size("share.coordinator.state.topic.num.partitions")
        self._ensure(self._shares, SHARE_STATE_STREAM, partitions, SHARE_STATE_CONFIG, done)

    def ensure_leases(self, done: Done) -> None:
        """See to it that leases on snapshots have somewhere to be stored."""
        self._ensure(self._leases, LEASES_STREAM, 1, LEASES_CONFIG, done)

    def ensure_inventory(self, done: Done) -> None:
        """See to it that tenants, namespaces and topics have somewhere to be stored."""

        def ready(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._ensure_queues(SYNC, {KIND: QUEUES}, done)

        self._ensure(self._inventory, INVENTORY_STREAM, self._size("inventory.shards"), INVENTORY_CONFIG, ready)

    def ensure_durability(self, durability: str, done: Done) -> None:
        """See to it that records of topics with a durability have somewhere to be stored; the inventory is made first.

        A cluster that is not upgraded refuses durability=os.
        """

        def ready(error: DuramenError | None) -> None:
            if error is not None or durability == SYNC:
                done(error)
            else:
                self._ensure_queues(durability, {KIND: QUEUES, DURABILITY: durability}, done)

        self.ensure_inventory(ready)

    def _ensure_queues(self, durability: str, config: Mapping[str, str], done: Done) -> None:
        shards = self._size("inventory.queue.shards")
        self._ensure(self._inventory.queues[durability], QUEUE_SPACES[durability], shards, config, done)

    def _size(self, setting: str) -> int:
        return self._settings.integer(setting)

    def _ensure(self, keeper: _Keeper, name: str, partitions: int, config: Mapping[str, str], done: Done) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(done)  # earlier requests come first, also if the stream exists by now
        elif keeper.ready:
            done(None)
        else:
            self._waiting[name] = deque([done])
            definition = Definition(name, partitions, config, internal=True)
            self._create(definition, partial(self._made, name), idempotent=True)

    def _made(self, name: str, error: DuramenError | None) -> None:
        if error is None:
            self._when_loaded(name, partial(self._loaded, name))
        else:
            self._loaded(name, error)

    def _loaded(self, name: str, error: DuramenError | None) -> None:
        waiting = self._waiting[name]
        while waiting:
            waiting.popleft()(error)
        del self._waiting[name]
