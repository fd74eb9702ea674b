"""Reads and writes share partition states at their coordinator, with retries (KIP-932's persister)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from duramen.base.errors import DuramenError, NotCoordinator, OutcomeUnknown
from duramen.broker.membership import NodeMembership
from duramen.coordinators.share.requests import (
    CHANGE_STATES,
    DROP,
    LOCATE,
    READ_STATE,
    WRITE_STATE,
    ChangeStates,
    Drop,
    Key,
    Locate,
    Located,
    ReadState,
    StateChange,
    Update,
    Was,
    WriteState,
    key_of,
)
from duramen.coordinators.share.state import StateStream
from duramen.coordinators.share.topics import ShareTopics
from duramen.groups.share_records import ShareKey, ShareState
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.methods import Method
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway, unasked_as
from duramen.rpc.server import Done as Answered

__all__ = ["Begin", "Mandate", "SharePersister", "StateDone", "StateWriter"]

Request = TypeVar("Request")
Response = TypeVar("Response")

_PACE: Final = RetryPace(within_ms=10_000, first_ms=50, most_ms=50)

Done = Callable[[DuramenError | None], None]
Mandate = Callable[[], int]
"""The epoch in which this node coordinates a group; raises NotCoordinator if it no longer does."""

StateDone = Callable[[ShareState | DuramenError], None]


class Begin(NamedTuple):
    """A state that starts at an offset (-1: its first reader chooses), of a partition with a leader epoch."""

    key: ShareKey
    start_offset: int
    leader_epoch: int


class SharePersister:
    """Sends requests to the leaders of partitions."""

    def __init__(self, stream: StateStream, topics: ShareTopics, membership: NodeMembership, caller: Caller) -> None:
        self._stream = stream
        self._topics = topics
        self._membership = membership
        self._caller = caller
        self._sequence = 0

    # -- states -------------------------------------------------------------------------------------

    def read(self, key: ShareKey, leader_epoch: int, done: StateDone) -> None:
        """Read the state of a share partition. From then on leaders older than `leader_epoch` cannot change it."""

        def answered(answer: Was | DuramenError) -> None:
            try:
                state = answer if isinstance(answer, DuramenError) else answer.state()
            except DuramenError as error:
                state = error
            done(state)

        self._ask_keeper(key, READ_STATE, lambda _: ReadState(key_of(key), leader_epoch), answered)

    def writer(self, key: ShareKey, state: ShareState, leader_epoch: int) -> "StateWriter":
        """The writer of changes to a state that was read."""
        return StateWriter(key, state.state_epoch, leader_epoch, self.write)

    def write(self, key: ShareKey, state_epoch: int, leader_epoch: int, updates: Sequence[Update], done: Done) -> None:
        """Store changes of a state; the previous write must have ended."""
        self._sequence += 1
        sequence = self._sequence

        def request(keeper_epoch: int) -> WriteState:
            return WriteState(key_of(key), keeper_epoch, state_epoch, leader_epoch, sequence, tuple(updates))

        self._ask_keeper(key, WRITE_STATE, request, lambda answer: done(_failure(answer)))

    def change(self, change: StateChange, wanted: Sequence[Begin], mandate: Mandate, done: Done) -> None:
        """Create, reset or delete states of a group; calls `done` once everything is durable."""
        by_partition: dict[PartitionId, list[Begin]] = {}
        try:
            for begin in wanted:
                by_partition.setdefault(self._stream.place_of(begin.key), []).append(begin)
        except DuramenError as error:
            done(error)
            return
        gather = _Gather(done)
        for begins in by_partition.values():
            states = tuple((key_of(key), start, leader_epoch) for key, start, leader_epoch in begins)
            request = partial(_change, change, states, mandate)
            self._ask_keeper(begins[0].key, CHANGE_STATES, request, gather.one())
        gather.end()

    def _ask_keeper(
        self, key: ShareKey, method: Method[Request, Response], request: Callable[[int], Request],
        done: Answered[Response],
    ) -> None:  # fmt: skip
        def answered(answer: Response | DuramenError) -> None:
            # To a client of the share partition, NotLeader says that another node leads the share partition itself.
            done(unasked_as(OutcomeUnknown, answer))

        self._ask(partial(self._stream.place_of, key), method, request, answered)

    # -- leaders of partitions ----------------------------------------------------------------------

    def stored_in(self, key: ShareKey) -> PartitionId:
        """The partition of a stream whose leader delivers a share partition."""
        return self._topics.stored_in((key.topic_id, key.partition))

    def locate(self, keys: Sequence[ShareKey], done: Callable[[Located | DuramenError], None]) -> None:
        """A group's offsets in one or more partitions, which all have the leader of the first."""
        request = Locate(tuple(map(key_of, keys)))
        place = self.stored_in(keys[0])
        self._ask(partial(_same, place), LOCATE, lambda _: request, done)

    def drop(self, keys: Sequence[ShareKey], done: Done) -> None:
        """Make the leaders drop states in memory; a partition without a leader has none."""
        gather = _Gather(done)
        by_place: dict[PartitionId, list[ShareKey]] = {}
        for key in keys:
            by_place.setdefault(self.stored_in(key), []).append(key)
        for place, mine in by_place.items():
            if self._membership.partition(place).leader is not None:
                self._ask(partial(_same, place), DROP, partial(_drop, mine), gather.one())
        gather.end()

    # -- asking -------------------------------------------------------------------------------------

    def _ask(
        self, place_of: Callable[[], PartitionId], method: Method[Request, Response],
        request: Callable[[int], Request], done: Answered[Response],
    ) -> None:  # fmt: skip
        """Send a request to the leader of a partition.

        `request` builds it for the leader's epoch, or raises to give up.
        """

        def leader() -> KnownLeader:
            state = self._membership.partition(place_of())
            return KnownLeader(state.leader, state.leader_epoch)

        def attempt(known: KnownLeader, left_ms: int, answered: Answered[Response]) -> Underway:
            said = request(known.epoch)
            if known.node_id is None:
                raise NotCoordinator("the partition with the state has no leader")
            if known.node_id == self._caller.node_id:
                self._caller.server.call(method, said, answered)
                return Underway(None)
            self._caller.call(known.node_id, method, said, answered, min(method.deadline_ms, left_ms))
            return Underway(known.node_id)

        Retrying(
            attempt, leader, _PACE, self._caller.clock, self._caller.deadlines, done, idempotent=method.idempotent
        ).begin()  # fmt: skip


class StateWriter:
    """Stores the changes of one state, one after the other; changes that arrive meanwhile are combined."""

    def __init__(
        self, key: ShareKey, state_epoch: int, leader_epoch: int,
        write: Callable[[ShareKey, int, int, Sequence[Update], Done], None],
    ) -> None:  # fmt: skip
        self.leader_epoch = leader_epoch
        self._key = key
        self._state_epoch = state_epoch
        self._write = write
        self._waiting: list[tuple[Update, Done]] = []
        self._busy = False

    def store(self, update: Update, done: Done) -> None:
        """Store a change; calls `done` once it is durable."""
        self._waiting.append((update, done))
        if not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        writing, self._waiting = self._waiting, []
        self._busy = True

        def written(error: DuramenError | None) -> None:
            self._busy = False
            if self._waiting:
                self._go_on()
            for _, done in writing:
                done(error)

        self._write(self._key, self._state_epoch, self.leader_epoch, [update for update, _ in writing], written)


class _Gather:
    """Calls `done` once all responses have arrived, with the first error among them."""

    def __init__(self, done: Done) -> None:
        self._done = done
        self._left = 1
        self._failed: DuramenError | None = None

    def one(self) -> Callable[[object], None]:
        """Add a response to wait for; returns its callback."""
        self._left += 1
        return self._answered

    def _answered(self, answer: object) -> None:
        self._failed = self._failed or _failure(answer)
        self.end()

    def end(self) -> None:
        """The last request is sent, or a response has arrived."""
        self._left -= 1
        if not self._left:
            self._done(self._failed)


def _change(
    change: StateChange, states: tuple[tuple[Key, int, int], ...], mandate: Mandate, keeper_epoch: int
) -> ChangeStates:
    return ChangeStates(change, keeper_epoch, mandate(), states)


def _drop(keys: Sequence[ShareKey], _: int) -> Drop:
    return Drop(tuple(map(key_of, keys)))


def _same(place: PartitionId) -> PartitionId:
    return place


def _failure(answer: object) -> DuramenError | None:
    return answer if isinstance(answer, DuramenError) else None
