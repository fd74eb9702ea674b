"""Takes snapshots over several partitions of a cluster, of one or more keyed streams, between transactions.

A snapshot is taken in four steps (docs/adr/keyed-vectors.md):

1. All replicas of the partitions report their committed offset: no marker below it belongs to a transaction decided
  later.
2. The transaction coordinators hold back the markers of later decisions, and report the transactions decided so far
  once all of those have their markers.
3. All replicas of the partitions, and of the coordinators' partitions, report again: the committed offset, and the
  commit markers since the first step. A leader's report is valid if every node that could lead instead has responded
  and knows of no later leader: so the responses include every decision and marker.
4. The snapshot ends in each partition before the first marker of a transaction that was decided later.

If no partition has records of a transaction, also when asked again, the committed offsets of the first step are the
snapshot.

If a step fails because leaders change or nodes do not respond, the procedure starts again.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import DuramenError, NodeStopping, SnapshotNotReached
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.coordinators.transaction.cluster.requests import (
    FIND_COMMITS,
    HOLD_COMMITS,
    RELEASE_COMMITS,
    CommitsFound,
    CommitsHeld,
    FindCommits,
    FoundCommits,
    HoldCommits,
    ReleaseCommits,
)
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.keyed.cuts import Aims, Commits, cut
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller, Gathered
from duramen.transactions.sequences import DecidedCommits, partition_of

__all__ = ["ClusterVectors", "Vector", "place_of"]

_FIRST_MS: Final = 10
_MOST_MS: Final = 200
_MOST_SETS: Final = 64
_NO_MARKERS: Final = -1

Vector = Mapping[PartitionId, int]
TakenDone = Callable[[Vector | DuramenError], None]


class _Led(NamedTuple):
    """A leader's response that no other response contradicts."""

    epoch: int
    found: FoundCommits


class ClusterVectors:
    """Concurrent requests for a snapshot of the same partitions share one that starts after all of them."""

    def __init__(self, places: TransactionDependencies, caller: Caller, clock: Clock, deadlines: Deadlines) -> None:
        self.places = places
        self.caller = caller
        self.clock = clock
        self.deadlines = deadlines
        self._numbers = count(1)
        self._under_way: dict[Hashable, _Taking] = {}
        self._next: dict[Hashable, list[TakenDone]] = {}
        self._aims: dict[Hashable, Aims] = {}
        self._stopped = False

    def take(self, partitions: Sequence[Partition], within_ms: int, done: TakenDone) -> None:
        """`done` gets a snapshot with every record acknowledged before the call, and each transaction as a whole.

        SnapshotNotReached if none is found in that time.
        """
        places = tuple(map(place_of, partitions))
        if self._stopped:
            done(NodeStopping("the node is stopping"))
        elif places in self._under_way:
            self._next.setdefault(places, []).append(done)
        else:
            self._begin(places, within_ms, [done])

    def _begin(self, places: tuple[PartitionId, ...], within_ms: int, waiting: Sequence[TakenDone]) -> None:
        def told(outcome: Vector | DuramenError) -> None:
            del self._under_way[places]
            later = self._next.pop(places, None)
            if not isinstance(outcome, DuramenError):
                self._remember(places, outcome)
            if later is not None:
                self._begin(places, within_ms, later)
            for one in waiting:
                one(outcome)

        number = next(self._numbers)
        taking = self._under_way[places] = _Taking(self, places, within_ms, f"{self.caller.node_id}/{number}", told)
        taking.begin()

    def stop(self) -> None:
        """Take no more snapshots; waiting requests get an error."""
        self._stopped = True
        self._next.clear()
        for taking in list(self._under_way.values()):
            taking.end(NodeStopping("the node is stopping"))

    # -- older ones ---------------------------------------------------------------------------------

    def _remember(self, places: tuple[PartitionId, ...], vector: Vector) -> None:
        aims = self._aims.pop(places, None) or Aims()
        self._aims[places] = aims
        if len(self._aims) > _MOST_SETS:
            del self._aims[next(iter(self._aims))]
        aims.add(self.clock.monotonic_ms(), [vector[place] for place in places])

    def older(self, oldest: Vector, reached: Vector) -> Vector:
        """The newest snapshot taken here that views at `reached` show.

        Snapshots before `oldest` are no longer shown. Raises SnapshotNotReached.
        """
        places = tuple(reached)
        aims = self._aims.get(places)
        found = None if aims is None else aims.newest([oldest[one] for one in places], [reached[one] for one in places])
        if found is None:
            raise SnapshotNotReached(
                "the views are behind: no snapshot that they have reached contains every transaction entirely"
            )
        return dict(zip(places, found, strict=True))


class _Taking:
    """One snapshot in progress. `attempt` increases with each try: late responses of an earlier one are ignored."""

    def __init__(
        self, vectors: ClusterVectors, places: Sequence[PartitionId], within_ms: int, name: str, done: TakenDone
    ) -> None:
        self._caller = vectors.caller
        self._places = places
        self._membership = vectors.places.membership
        self._log = vectors.places.log
        self._clock = vectors.clock
        self._deadlines = vectors.deadlines
        self._name = name
        self._until_ms = vectors.clock.monotonic_ms() + within_ms
        self._wait_ms = _FIRST_MS
        self._attempt = 0
        self._held: list[int] = []
        self._again: Deadline | None = None
        self._done: TakenDone | None = done

    def begin(self) -> None:
        """Start the next attempt."""
        self._attempt += 1
        self._again = None
        self._find(dict.fromkeys(self._places, _NO_MARKERS), self._first)

    def end(self, outcome: Vector | DuramenError) -> None:
        """End with this outcome."""
        self._release()
        self._attempt += 1
        if self._again is not None:
            self._again.cancel()
        done, self._done = self._done, None
        if done is not None:
            done(outcome)

    def _fail(self, why: str) -> None:
        self._release()
        self._attempt += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self.end(SnapshotNotReached(f"no snapshot between transactions was found in time: {why}"))
            return
        wait_ms, self._wait_ms = self._wait_ms, min(2 * self._wait_ms, _MOST_MS)
        self._again = self._deadlines.at(min(now_ms + wait_ms, self._until_ms), self.begin)

    # -- responses of replicas ----------------------------------------------------------------------

    def _find(self, wanted: Mapping[PartitionId, int], then: Callable[[Mapping[PartitionId, _Led]], None]) -> None:
        """Ask all nodes that have a replica, and continue with the leaders' responses."""
        by_node: dict[int, list[PartitionId]] = {}
        for place in wanted:
            for node_id in self._membership.partition(place).replicas:
                by_node.setdefault(node_id, []).append(place)
        requests = {
            node_id: FindCommits(tuple((place.stream_id.bytes, place.partition, wanted[place]) for place in places))
            for node_id, places in by_node.items()
        }
        self._caller.gather(FIND_COMMITS, requests, partial(self._found, self._attempt, by_node, list(wanted), then))

    def _found(
        self, attempt: int, by_node: Mapping[int, Sequence[PartitionId]], wanted: Sequence[PartitionId],
        then: Callable[[Mapping[PartitionId, _Led]], None], gathered: Gathered[CommitsFound],
    ) -> None:  # fmt: skip
        if attempt != self._attempt:
            return
        said: dict[PartitionId, dict[int, FoundCommits]] = {place: {} for place in wanted}
        for node_id, answer in gathered.answers.items():
            for place, found in zip(by_node[node_id], answer.partitions, strict=False):
                said[place][node_id] = found
        led = dict[PartitionId, _Led]()
        transactional = any(one.transactional for answers in said.values() for one in answers.values())
        for place, answers in said.items():
            leader = _leader(answers, transactional=transactional)
            if isinstance(leader, str):
                missing = next(iter(gathered.missing.values()), None)
                self._fail(leader if missing is None else f"{leader}: {missing}")
                return
            led[place] = leader
        then(led)

    # -- step by step -------------------------------------------------------------------------------

    def _first(self, led: Mapping[PartitionId, _Led]) -> None:
        if _transactional(led):
            self._hold(led)
        else:
            self._find(dict.fromkeys(self._places, _NO_MARKERS), partial(self._without, led))

    def _without(self, first: Mapping[PartitionId, _Led], led: Mapping[PartitionId, _Led]) -> None:
        """Take the first high watermarks as the snapshot, if there are no transactions.

        A transaction with a marker below them had written everywhere by then, and would be known.
        """
        if _transactional(led):
            self._fail("transactions have begun")
        else:
            self.end({place: one.found.high_watermark for place, one in first.items()})

    def _hold(self, first: Mapping[PartitionId, _Led]) -> None:
        by_node: dict[int, list[tuple[int, int]]] = {}
        for partition in self._log.partitions:
            state = self._membership.partition(self._log.place(partition.index))
            if state.leader is None:
                self._fail(f"partition {partition.index} of the transaction coordinators has no leader at present")
                return
            by_node.setdefault(state.leader, []).append((partition.index, state.leader_epoch))
        streams = tuple(dict.fromkeys(place.stream_id.bytes for place in self._places))
        requests = {
            node_id: HoldCommits(self._name.encode(), streams, tuple(coordinators))
            for node_id, coordinators in by_node.items()
        }
        self._held = list(requests)
        self._caller.gather(HOLD_COMMITS, requests, partial(self._holds, self._attempt, first, by_node))

    def _holds(
        self, attempt: int, first: Mapping[PartitionId, _Led], by_node: Mapping[int, Sequence[tuple[int, int]]],
        gathered: Gathered[CommitsHeld],
    ) -> None:  # fmt: skip
        if attempt != self._attempt:
            return
        if gathered.missing:
            self._fail(str(next(iter(gathered.missing.values()))))
            return
        epochs, decided = dict[PartitionId, int](), dict[int, DecidedCommits]()
        for node_id, answer in gathered.answers.items():
            for (index, epoch), held in zip(by_node[node_id], answer.coordinators, strict=False):
                epochs[self._log.place(index)] = epoch
                decided[index] = DecidedCommits(held.newest_us, frozenset(held.undecided))
        wanted = {place: one.found.high_watermark for place, one in first.items()}
        wanted |= dict.fromkeys(epochs, _NO_MARKERS)
        self._find(wanted, partial(self._last, epochs, decided))

    def _last(
        self, epochs: Mapping[PartitionId, int], decided: Mapping[int, DecidedCommits],
        led: Mapping[PartitionId, _Led],
    ) -> None:  # fmt: skip
        if any(led[place].epoch != epoch for place, epoch in epochs.items()):
            self._fail("another node now coordinates transactions")
            return

        def is_in(sequence: int) -> bool:
            known = decided.get(partition_of(sequence))
            return known is not None and known.has(sequence)

        found = {place: led[place].found for place in self._places}
        vector = cut({place: Commits(one.high_watermark, one.commits) for place, one in found.items()}, is_in)
        if vector is None:
            self._fail("transactions were committed meanwhile")
        else:
            self.end(vector)

    def _release(self) -> None:
        held, self._held = self._held, []
        for node_id in held:
            self._caller.call(node_id, RELEASE_COMMITS, ReleaseCommits(self._name.encode()), lambda _: None)


def _leader(answers: Mapping[int, FoundCommits], *, transactional: bool) -> _Led | str:
    """The leader's response, if all nodes that could lead instead have responded and know no later leader.

    Otherwise the reason why there is none. If no node knows of transactions, no later leader can have a marker: the
    leader's response is enough.
    """
    led = max((one for one in answers.values() if one.high_watermark >= 0), key=lambda one: one.epoch, default=None)
    if led is None:
        return next((one.why for one in answers.values() if one.why), "no leader answers")
    if any(one.epoch > led.epoch for one in answers.values()):
        return "a leader has changed"
    if transactional and not all(node_id in answers and answers[node_id].epoch >= 0 for node_id in led.in_sync):
        return "an in-sync node does not respond"
    return _Led(led.epoch, led)


def _transactional(led: Mapping[PartitionId, _Led]) -> bool:
    """Whether a transaction may have written to one of the partitions."""
    return any(one.found.transactional for one in led.values())


def place_of(partition: Partition) -> PartitionId:
    """The partition's stream and number."""
    return PartitionId(partition.log.key.stream_id, partition.index)
