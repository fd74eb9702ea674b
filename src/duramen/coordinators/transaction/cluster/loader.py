"""The partitions of `__transaction_state` that this node leads: what is committed in them is taken in, and let go."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator
from duramen.broker.partition import Partition
from duramen.codec.attempts import query_name
from duramen.coordinators.transaction.log import TransactionLog
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.transactions.batch_decisions import Query
from duramen.transactions.values import TransactionalId

__all__ = ["Shard", "Shards"]


class Shard:
    """A partition of `__transaction_state`, led by this node in `epoch`. Compared by identity: led again is another."""

    __slots__ = ("epoch", "loaded", "partition", "wake")

    def __init__(self, partition: Partition, epoch: int, wake: Callable[["Shard"], None]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.loaded = False
        self.wake: Callable[[Partition], None] = lambda _: wake(self)

    @property
    def index(self) -> int:
        """Which partition it is."""
        return self.partition.index


class _Taking:
    """What is stored in a partition goes into memory while this node leads it without a break."""

    def __init__(self, shards: "Shards", known: KnownTransactions, shard: Shard) -> None:
        self._shards = shards
        self._known = known
        self._shard = shard

    def take(self, id_: str, one: TransactionalId | None) -> None:
        if not self._shards.is_led(self._shard):
            return
        if one is None:
            self._known.remove(id_)
        else:
            self._known.put(one)

    def take_query(self, id_: str, query: Query | None) -> None:
        if self._shards.is_led(self._shard):
            self._known.put_query(id_, query)


class Shards:
    """What this node coordinates: the ids of these partitions are in `known`, those of others are not."""

    def __init__(
        self,
        log: TransactionLog,
        known: KnownTransactions,
        soon: Callable[[Callable[[], None]], None],
        report: Callable[[str], None],
        began: Callable[[Shard], None],
    ) -> None:
        """`began` is told of each partition that has been taken in; `report`, what an operator should hear of."""
        self._log = log
        self._known = known
        self._soon = soon
        self._report = report
        self._began = began
        self._shards: dict[int, Shard] = {}

    def get(self, id_: str) -> Shard:
        """The partition of an id. Raises NotCoordinator, CoordinatorLoading."""
        shard = self._shards.get(self._log.partition_of(id_))
        if shard is None or shard.partition.deposed:
            raise NotCoordinator(f"this node does not coordinate the transactional id {id_}")
        if not shard.loaded:
            raise CoordinatorLoading(f"the transactions among which {id_} is are still being read")
        return shard

    def keeps(self, shard: Shard, id_: str) -> bool:
        """Whether it is the partition of an id: others may be taken in at the same time."""
        return self._log.partition_of(id_) == shard.index

    def is_led(self, shard: Shard) -> bool:
        """Whether this node still leads it, without a break."""
        return self._shards.get(shard.index) is shard

    def led(self, partition: Partition, epoch: int | None) -> None:
        """From here on this node leads that partition; None: no more."""
        before = self._shards.pop(partition.index, None)
        if before is not None:
            before.partition.waiting.pop(before.wake, None)
            self._forget(partition.index)
        if epoch is not None:
            shard = self._shards[partition.index] = Shard(partition, epoch, self._look)
            partition.waiting[shard.wake] = None
            self._soon(partial(self._look, shard))

    def _forget(self, index: int) -> None:
        for one in self._known.values():
            if self._log.partition_of(one.id) == index:
                self._known.remove(one.id)
        for query in self._known.queries():
            if self._log.partition_of(query_name(query.id)) == index:
                self._known.put_query(query.id, None)

    def _look(self, shard: Shard) -> None:
        """Take it in once all that leaders before have acknowledged is known to be committed."""
        if not self.is_led(shard) or shard.wake not in shard.partition.waiting or shard.partition.role is None:
            return
        latest_offset = shard.partition.role.latest_offset
        if latest_offset is not None and latest_offset <= shard.partition.log.high_watermark:
            del shard.partition.waiting[shard.wake]
            taking = _Taking(self, self._known, shard)
            self._log.load([shard.partition], taking, self._report, partial(self._loaded, shard))

    def _loaded(self, shard: Shard, error: DuramenError | OSError | None) -> None:
        if not self.is_led(shard):
            return
        if error is not None:
            self._report(f"transactions cannot be read, and are coordinated by nobody until a restart: {error}")
            return
        shard.loaded = True
        self._began(shard)
