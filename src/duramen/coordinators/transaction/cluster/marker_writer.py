"""What is prepared becomes complete: markers go to the leaders of its partitions, again until each has its own."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.coordinators.transaction.cluster.loader import Shard, Shards
from duramen.coordinators.transaction.cluster.requests import WRITE_MARKERS, WriteMarkers, WriteMarkersResponse
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.transactions.values import PartitionName, TransactionalId, TransactionState

__all__ = ["Complete", "Finishing"]

Complete = Callable[[Shard, TransactionalId, Callable[[], None]], None]

_AGAIN_MS: Final = 50
_AGAIN_MOST_MS: Final = 1_000
_AT_ONCE: Final = 1_000  # markers in one request


class _Ending:
    """A transaction that is prepared; `left` are the partitions whose marker nobody has confirmed."""

    __slots__ = ("left", "one", "shard")

    def __init__(self, shard: Shard, one: TransactionalId) -> None:
        self.shard = shard
        self.one = one
        self.left: set[PartitionName] | None = set(one.partitions)  # None: all have it


class Finishing:
    """Ends the transactions that this node coordinates. `complete` stores that one is."""

    def __init__(
        self,
        places: TransactionDependencies,
        shards: Shards,
        caller: Caller,
        clock: Clock,
        deadlines: Deadlines,
        metrics: Metrics,
        complete: Complete,
    ) -> None:
        self._committed = metrics.counter("duramen_transactions_total", "committed")
        self._aborted = metrics.counter("duramen_transactions_total", "aborted")
        self._places = places
        self._shards = shards
        self._caller = caller
        self._clock = clock
        self._deadlines = deadlines
        self._complete = complete
        self._again: dict[_Ending, set[PartitionName]] = {}
        self._again_ms = _AGAIN_MS
        self._timer: Deadline | None = None

    def begin(self, shard: Shard, prepared: TransactionalId) -> None:
        """See to the end of a transaction that is stored as prepared."""
        ending = _Ending(shard, prepared)
        self._send(ending, prepared.partitions)
        self._look(ending)

    def _look(self, ending: _Ending) -> None:
        if ending.left is not None and not ending.left:
            ending.left = None
            commit = ending.one.state is TransactionState.PREPARE_COMMIT
            self._complete(ending.shard, ending.one, partial(self._ended, commit=commit))

    def _ended(self, *, commit: bool) -> None:
        (self._committed if commit else self._aborted).value += 1

    def _send(self, ending: _Ending, wanted: Iterable[PartitionName]) -> None:
        by_node: dict[int, list[tuple[PartitionName, PartitionId]]] = {}
        for one in sorted(wanted):
            stream = self._places.streams.find(one.topic)
            if stream is None or one.partition >= len(stream.partitions):
                # It joined as one that this node knew: it is deleted since.
                self._settle(ending, one)
                continue
            place = PartitionId(stream.id, one.partition)
            leader = self._places.membership.partition(place).leader
            if leader is None:
                self._later(ending, [one])
            else:
                by_node.setdefault(leader, []).append((one, place))
        for node_id, found in by_node.items():
            for first in range(0, len(found), _AT_ONCE):
                self._ask(ending, node_id, found[first : first + _AT_ONCE])

    def _ask(self, ending: _Ending, node_id: int, found: list[tuple[PartitionName, PartitionId]]) -> None:
        one = ending.one
        request = WriteMarkers(
            ending.shard.index, ending.shard.epoch, one.producer_id, one.epoch,
            one.state is TransactionState.PREPARE_COMMIT, one.version,
            tuple((place.stream_id.bytes, place.partition) for _, place in found), one.sequence,
        )  # fmt: skip
        answered = partial(self._answered, ending, [place for place, _ in found])
        self._caller.call(node_id, WRITE_MARKERS, request, answered)

    def _answered(
        self, ending: _Ending, asked: list[PartitionName], answer: WriteMarkersResponse | DuramenError
    ) -> None:
        if isinstance(answer, WriteMarkersResponse) and len(answer.results) == len(asked):
            for one, refused in zip(asked, answer.results, strict=True):
                if refused is None:
                    self._again_ms = _AGAIN_MS
                    self._settle(ending, one)
                else:
                    self._later(ending, [one])
        else:
            self._later(ending, asked)
        self._look(ending)

    def _settle(self, ending: _Ending, one: PartitionName) -> None:
        if ending.left is not None:
            ending.left.discard(one)

    # -- again --------------------------------------------------------------------------------------

    def _later(self, ending: _Ending, wanted: Iterable[PartitionName]) -> None:
        self._again.setdefault(ending, set()).update(wanted)
        if self._timer is None:
            self._timer = self._deadlines.at(self._clock.monotonic_ms() + self._again_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._again_ms = min(2 * self._again_ms, _AGAIN_MOST_MS)
        again, self._again = self._again, {}
        for ending, wanted in again.items():
            # Where another node leads the partition of the id, that one has found what is prepared.
            if self._shards.is_led(ending.shard):
                self._send(ending, wanted)
                self._look(ending)

    def stop(self) -> None:
        """Nothing is sent any more."""
        self._again.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
