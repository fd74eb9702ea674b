"""Before a batch of a transaction is appended, its partition's leader asks the coordinator (KIP-890).

Only the first batch of a transaction is verified: while one is open in the log, its marker is still to come, and
batches before that belong to it. Batches of a producer for a partition that arrive meanwhile wait behind the one being
verified.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    OutcomeUnknown,
)
from duramen.broker.partition import Partition
from duramen.coordinators.transaction.cluster.participant import Participant
from duramen.coordinators.transaction.cluster.requests import JOIN, Join, Joined
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.rpc.caller import Caller
from duramen.rpc.retry import UNASKED
from duramen.storage.log.log import LogKey
from duramen.transactions.values import ProducerIdentity

__all__ = ["Admitted", "TransactionVerification"]

Admitted = Callable[[bool, DuramenError | None], None]
"""Called with whether the partition has joined just now, or with the reason why nothing may be appended."""

_AGAIN: Final = (*UNASKED, CoordinatorLoading, NotCoordinator, OutcomeUnknown)


class _Key(NamedTuple):
    log: LogKey
    id: str
    identity: ProducerIdentity
    joins: bool


class _Lane:
    """Batches that wait for a response: `waiting` is emptied once, by the response or by an earlier marker."""

    __slots__ = ("key", "leader_epoch", "partition", "waiting")

    def __init__(self, key: _Key, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.waiting: list[Admitted] = []


class TransactionVerification:
    """Asks coordinators on behalf of the partitions that this node leads."""

    def __init__(
        self,
        places: TransactionDependencies,
        participant: Participant,
        caller: Caller,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._places = places
        self._participant = participant
        self._caller = caller
        self._soon = soon
        self._lanes: dict[_Key, _Lane] = {}
        self._asking: dict[tuple[str, ProducerIdentity, bool], list[_Lane]] = {}

    def admit(self, id_: str, identity: ProducerIdentity, partition: Partition, *, joins: bool, done: Admitted) -> None:
        """Calls `done` once a batch may be appended, in the order of the calls for a producer and a partition.

        The error is NotEnoughReplicas if the coordinator cannot be asked now.
        """
        key = _Key(partition.log.key, id_, identity, joins)
        lane = self._lanes.get(key)
        if lane is not None:
            lane.waiting.append(done)
        elif self._is_open(partition, identity):
            done(False, None)
        else:
            lane = self._lanes[key] = _Lane(key, partition)
            lane.waiting.append(done)
            if not self._asking:
                self._soon(self._ask)
            self._asking.setdefault((id_, identity, joins), []).append(lane)

    def _is_open(self, partition: Partition, identity: ProducerIdentity) -> bool:
        log, producer_id = partition.log, identity.producer_id
        return (
            log.transactions.first_offset(producer_id) is not None
            and log.producers.epoch(producer_id) == identity.epoch
            and not self._participant.is_ending(partition, producer_id)
        )

    def ended(self, partition: Partition, producer_id: int) -> None:
        """A marker is about to be written: a pending response may be about the transaction that it ends."""
        for key, lane in list(self._lanes.items()):
            if key.log == partition.log.key and key.identity.producer_id == producer_id:
                self._refuse([lane], OutcomeUnknown("its transaction was ended meanwhile"))

    # -- asking -------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """One request for all batches of a turn."""
        asking, self._asking = self._asking, {}
        for (id_, identity, joins), lanes in asking.items():
            try:
                place = self._places.log.place_of(id_)
            except CoordinatorLoading as error:
                self._refuse(lanes, error)
                continue
            leader = self._places.membership.partition(place).leader
            if leader is None:
                self._refuse(lanes, NotCoordinator("it has no coordinator at present"))
                continue
            partitions = tuple((lane.partition.stream.name, lane.partition.index) for lane in lanes)
            request = Join(id_, identity.producer_id, identity.epoch, joins, partitions)
            self._caller.call(leader, JOIN, request, partial(self._answered, place.partition, lanes))

    def _answered(self, coordinator: int, lanes: Sequence[_Lane], answer: Joined | DuramenError) -> None:
        if isinstance(answer, Joined) and len(answer.begins) == len(lanes):
            try:
                self._participant.check(coordinator, answer.coordinator_epoch)
            except DuramenError as error:
                self._refuse(lanes, error)
                return
            for lane, begins in zip(lanes, answer.begins, strict=True):
                self._admit(lane, begins=begins)
        elif isinstance(answer, DuramenError):
            self._refuse(lanes, answer)
        else:
            self._refuse(lanes, OutcomeUnknown(f"{answer} has a response for another number of partitions"))

    def _admit(self, lane: _Lane, *, begins: bool) -> None:
        if lane.leader_epoch != lane.partition.leader_epoch:
            # Another node may have led in between, and have written the marker.
            self._refuse([lane], NotLeader("this node is no longer the leader of the partition in the same epoch"))
            return
        for done in self._close(lane):
            done(begins, None)
            begins = False

    def _refuse(self, lanes: Sequence[_Lane], error: DuramenError) -> None:
        if isinstance(error, _AGAIN):
            error = NotEnoughReplicas(f"it is not known whether the partition is in the transaction: {error}")
        for lane in lanes:
            for done in self._close(lane):
                done(False, error)

    def _close(self, lane: _Lane) -> list[Admitted]:
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
        waiting, lane.waiting = lane.waiting, []
        return waiting
