"""Asks whoever leads for what is kept of share partitions, again where another comes to lead (KIP-932's persister)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutcomeUnknown,
)
from duramen.base.ports import Clock
from duramen.broker.coordinating.nodes import Nodes
from duramen.broker.sharing.requests import (
    Answer,
    AnswerDone,
    Change,
    ChangeStates,
    Drop,
    Key,
    Locate,
    Located,
    ReadState,
    Request,
    Update,
    Was,
    WriteState,
    key_of,
)
from duramen.broker.sharing.state import ShareStates
from duramen.broker.standing import Standing
from duramen.controller.partitions import PartitionId
from duramen.groups.share_records import ShareKey, ShareState

__all__ = ["AGAIN", "Begin", "Mandate", "SharePersister", "StateDone", "StateWriter"]

AGAIN: Final = (
    CoordinatorLoading, NotCoordinator, NotEnoughReplicas, NotEnoughReplicasAfterAppend, OutcomeUnknown,
)  # fmt: skip
"""What may be otherwise after a moment."""

_AGAIN_MS: Final = 50
_GIVE_UP_MS: Final = 10_000

Done = Callable[[DuramenError | None], None]
Mandate = Callable[[], int]
"""The epoch in which this node coordinates a group; raises NotCoordinator where it does no more."""

StateDone = Callable[[ShareState | DuramenError], None]


class Begin(NamedTuple):
    """A state that is to begin at an offset (-1: where its first reader says), of a partition with a leader epoch."""

    key: ShareKey
    start_offset: int
    leader_epoch: int


class SharePersister:
    """Asks. `serve` answers what this node asks itself."""

    def __init__(
        self, node_id: int, states: ShareStates, standing: Standing, clock: Clock, deadlines: Deadlines,
        nodes: Nodes[Request, Answer], serve: Callable[[Request, AnswerDone], None],
    ) -> None:  # fmt: skip
        self._node_id = node_id
        self._states = states
        self._standing = standing
        self._clock = clock
        self._deadlines = deadlines
        self._nodes = nodes
        self._serve = serve
        self._sequence = 0

    # -- states -------------------------------------------------------------------------------------

    def read(self, key: ShareKey, leader_epoch: int, done: StateDone) -> None:
        """What is kept of a share partition. No older leader than that of `leader_epoch` changes it from then on."""

        def answered(answer: Answer | DuramenError) -> None:
            try:
                done(answer.state() if isinstance(answer, Was) else _error(answer))
            except DuramenError as error:
                done(error)

        self._ask_keeper(key, lambda _: ReadState(key_of(key), leader_epoch), answered)

    def writer(self, key: ShareKey, state: ShareState, leader_epoch: int) -> "StateWriter":
        """Who stores the changes of a state that was read."""
        return StateWriter(key, state.state_epoch, leader_epoch, self.write)

    def write(self, key: ShareKey, state_epoch: int, leader_epoch: int, updates: Sequence[Update], done: Done) -> None:
        """Store changes of a state; the one before has to be answered first."""
        self._sequence += 1
        sequence = self._sequence

        def request(keeper_epoch: int) -> Request:
            return WriteState(key_of(key), keeper_epoch, state_epoch, leader_epoch, sequence, tuple(updates))

        self._ask_keeper(key, request, lambda answer: done(_failure(answer)))

    def change(self, change: Change, wanted: Sequence[Begin], mandate: Mandate, done: Done) -> None:
        """States of a group begin, begin anew or are forgotten; `done` once all of it is durable."""
        by_partition: dict[PartitionId, list[Begin]] = {}
        try:
            for begin in wanted:
                by_partition.setdefault(self._states.place_of(begin.key), []).append(begin)
        except DuramenError as error:
            done(error)
            return
        gather = _Gather(done)
        for begins in by_partition.values():
            states = tuple((key_of(key), start, leader_epoch) for key, start, leader_epoch in begins)
            request = partial(_change, change, states, mandate)
            self._ask_keeper(begins[0].key, request, gather.one())
        gather.end()

    def _ask_keeper(self, key: ShareKey, request: "_RequestFor", done: AnswerDone) -> None:
        self._ask(partial(self._states.place_of, key), request, done)

    # -- leaders of partitions ----------------------------------------------------------------------

    def locate(self, keys: Sequence[ShareKey], done: Callable[[Located | DuramenError], None]) -> None:
        """Where a group is in partitions, at least one, all of which are led by who leads the first."""
        request = Locate(tuple(map(key_of, keys)))
        place = PartitionId(keys[0].topic_id, keys[0].partition)

        def answered(answer: Answer | DuramenError) -> None:
            done(answer if isinstance(answer, Located) else _error(answer))

        self._ask(partial(_same, place), lambda _: request, answered)

    def drop(self, keys: Sequence[ShareKey], done: Done) -> None:
        """Have nobody deliver by a state that he has read before; where nobody leads, nobody has."""
        gather = _Gather(done)
        by_place: dict[PartitionId, list[ShareKey]] = {}
        for key in keys:
            by_place.setdefault(PartitionId(key.topic_id, key.partition), []).append(key)
        for place, mine in by_place.items():
            if self._standing.partition(place).leader is not None:
                self._ask(partial(_same, place), partial(_drop, mine), gather.one())
        gather.end()

    # -- asking -------------------------------------------------------------------------------------

    def _ask(self, place_of: Callable[[], PartitionId], request: "_RequestFor", done: AnswerDone) -> None:
        until_ms = self._clock.monotonic_ms() + _GIVE_UP_MS

        def ask() -> None:
            try:
                state = self._standing.partition(place_of())
                said = request(state.leader_epoch)
            except DuramenError as error:
                answered(error)
            else:
                self._ask_once(state.leader, said, answered)

        def answered(answer: Answer | DuramenError) -> None:
            now_ms = self._clock.monotonic_ms()
            if isinstance(answer, (*AGAIN, NotLeader)) and now_ms < until_ms:
                self._deadlines.at(now_ms + _AGAIN_MS, ask)
            else:
                done(answer)

        ask()

    def _ask_once(self, leader: int | None, request: Request, done: AnswerDone) -> None:
        if leader is None:
            done(NotCoordinator("nobody leads the partition that would have to be asked"))
        elif leader == self._node_id:
            self._serve(request, done)
        else:
            self._nodes.ask(leader, request, done)


class StateWriter:
    """Stores the changes of one state, one after the other; those that come meanwhile go together."""

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
        """Store a change; `done` once it is durable."""
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
    """Calls `done` once, when all answers are there, with the first error among them."""

    def __init__(self, done: Done) -> None:
        self._done = done
        self._left = 1
        self._failed: DuramenError | None = None

    def one(self) -> AnswerDone:
        """One more that will be answered."""
        self._left += 1
        return self._answered

    def _answered(self, answer: Answer | DuramenError) -> None:
        self._failed = self._failed or _failure(answer)
        self.end()

    def end(self) -> None:
        """No more will be asked, or one is answered."""
        self._left -= 1
        if not self._left:
            self._done(self._failed)


_RequestFor = Callable[[int], Request]
"""What is said to who leads in an epoch, each time that it is said. Raises why it is not to be said any more."""


def _change(
    change: Change, states: tuple[tuple[Key, int, int], ...], mandate: Mandate, keeper_epoch: int
) -> ChangeStates:
    return ChangeStates(change, keeper_epoch, mandate(), states)


def _drop(keys: Sequence[ShareKey], _: int) -> Drop:
    return Drop(tuple(map(key_of, keys)))


def _same(place: PartitionId) -> PartitionId:
    return place


def _failure(answer: Answer | DuramenError) -> DuramenError | None:
    return answer if isinstance(answer, DuramenError) else None


def _error(answer: Answer | DuramenError) -> DuramenError:
    return answer if isinstance(answer, DuramenError) else OutcomeUnknown(f"{answer} does not answer that")
