"""The broker's own streams, in which groups, transactions and share groups are stored: made when first needed."""

from collections.abc import Callable, Mapping
from typing import Protocol

from duramen.base.errors import DuramenError
from duramen.base.settings import Settings
from duramen.broker.offsets import OFFSETS_CONFIG, OFFSETS_STREAM
from duramen.broker.sharing_state import SHARE_STATE_CONFIG, SHARE_STATE_STREAM
from duramen.broker.transaction_log import TRANSACTIONS_STREAM
from duramen.controller.decisions import Definition

__all__ = ["InternalStreams"]

Done = Callable[[DuramenError | None], None]


class _Keeper(Protocol):
    @property
    def ready(self) -> bool:
        """Whether it has the stream that it keeps things in."""


class _Create(Protocol):
    def __call__(self, wish: Definition, done: Done, *, idempotent: bool) -> None:
        """Create a stream."""


class InternalStreams:
    """Sees to it that each is there for who asks."""

    def __init__(
        self, create: _Create, settings: Settings, offsets: _Keeper, transactions: _Keeper, shares: _Keeper
    ) -> None:
        """What keeps offsets, transactions and the state of share groups says when it is `ready`."""
        self._create = create
        self._settings = settings
        self._offsets = offsets
        self._transactions = transactions
        self._shares = shares

    def ensure_offsets(self, done: Done) -> None:
        """See to it that groups have somewhere to be stored."""
        self._ensure(self._offsets, OFFSETS_STREAM, "offsets.topic.num.partitions", OFFSETS_CONFIG, done)

    def ensure_transactions(self, done: Done) -> None:
        """See to it that transactions have somewhere to be stored."""
        config = {
            "cleanup.policy": "compact",
            "durability": "sync",
            "segment.bytes": str(self._settings.integer("transaction.state.log.segment.bytes")),
        }
        partitions = "transaction.state.log.num.partitions"
        self._ensure(self._transactions, TRANSACTIONS_STREAM, partitions, config, done)

    def ensure_shares(self, done: Done) -> None:
        """See to it that share groups have somewhere to be stored."""
        partitions = "share.coordinator.state.topic.num.partitions"
        self._ensure(self._shares, SHARE_STATE_STREAM, partitions, SHARE_STATE_CONFIG, done)

    def _ensure(self, keeper: _Keeper, name: str, partitions: str, config: Mapping[str, str], done: Done) -> None:
        if keeper.ready:
            done(None)
            return
        wish = Definition(name, self._settings.integer(partitions), config, internal=True)
        self._create(wish, done, idempotent=True)
