"""The metadata of a standalone node: decisions are proposed, and take effect once they are committed.

Decisions use the state *including* uncommitted proposals, so that two of them never contradict each other; readers see
only committed state.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.base.ids import METADATA_STREAM_ID, Position
from duramen.base.ports import Clock
from duramen.codec.batch import BatchInput, Header, check, encode, records
from duramen.controller.quorum.port import Quorum
from duramen.metadata.events import Event, NodeRegistered, StreamDeleted, decode_event, encode_event
from duramen.metadata.state import ControllerState
from duramen.raft.description import QuorumDescription, ReplicaProgress
from duramen.raft.voters import ReplicaId, Voter, Voters
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.scan import scan_log
from duramen.storage.store import Store

__all__ = ["LogQuorum", "Metadata"]

Decision = Callable[[ControllerState], Sequence[Event]]


class _Proposal(NamedTuple):
    events: Sequence[Event]
    waiting: list[Callable[[DuramenError | None], None]]


class LogQuorum:
    """The Quorum port of a standalone node: one log, committed up to its synced end."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.log: Log = store.ensure(LogKey(METADATA_STREAM_ID, 0), LogConfig(durability="sync"))

    def propose(self, events: Sequence[Event], done: Callable[[Position | DuramenError], None]) -> None:
        now_ms = self._clock.wall_ms()
        batch = encode(BatchInput(now_ms, None, encode_event(event)) for event in events)
        epoch = self._store.node_epoch

        def appended(base_offset: int, error: DuramenError | None) -> None:
            done(Position(epoch, base_offset + len(events) - 1) if error is None else error)

        self._store.append(self.log, batch, check(batch), epoch, appended)

    def describe(self, node_id: int, directory_id: str) -> QuorumDescription:
        """The quorum of this one node."""
        me, now_ms, synced = ReplicaId(node_id, directory_id), self._clock.wall_ms(), self.log.synced_offset
        row = ReplicaProgress(me, self.log.end_offset, synced, now_ms, now_ms)
        return QuorumDescription(node_id, self._store.node_epoch, synced, (row,), (), Voters([Voter(me)]))


class Metadata:
    """The committed state, and its changes. `on_event` is called for each event that takes effect after `start`."""

    def __init__(self, store: Store, quorum: Quorum, log: Log, on_event: Callable[[Event], None]) -> None:
        self._store = store
        self._quorum = quorum
        self._log = log
        self._on_event = on_event
        self.state = ControllerState()
        self.deleted: set[UUID] = set()  # streams whose deletion was in the log at the start
        self._registered: list[tuple[int, NodeRegistered]] = []  # by the epoch of the log
        self._ahead = ControllerState()
        self._proposed: deque[_Proposal] = deque()

    @property
    def directory(self) -> str:
        """The directory of the log's files, for messages."""
        return self._log.directory

    def start(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Apply the log."""

        def take(found: Header, batch: bytes) -> None:
            for record in records(batch, verify=False):
                if record.value is not None:
                    event = decode_event(record.value)
                    self.state.apply(event)
                    if isinstance(event, StreamDeleted):
                        self.deleted.add(UUID(event.id))
                    if isinstance(event, NodeRegistered):
                        self._registered.append((found.leader_epoch, event))

        def finished(error: DuramenError | OSError | None) -> None:
            self._ahead = self.state.copy()
            done(error)

        scan_log(self._store, self._log, 0, take, finished)

    def leader_of(self, epoch: int, directory_id: str) -> int:
        """The id of the node that led the logs of a data directory in an earlier epoch; -1 if unknown."""
        mine = [(since, event.node_id) for since, event in self._registered if event.directory_id == directory_id]
        at = bisect_right(mine, epoch, key=lambda registered: registered[0])
        return mine[at - 1][1] if at else -1

    def _apply(self, event: Event) -> None:
        self.state.apply(event)
        self._on_event(event)

    def decide(self, decision: Decision, done: Callable[[DuramenError | None], None]) -> None:
        """Make a decision; `done(None)` once its events have taken effect, or `done(error)`."""
        try:
            events = decision(self._ahead)
        except DuramenError as error:
            done(error)
            return
        if not events and self._proposed:
            # There is nothing to change, but the state it rests on is not committed yet.
            self._proposed[-1].waiting.append(done)
        elif not events:
            done(None)
        else:
            for event in events:
                self._ahead.apply(event)
            proposal = _Proposal(events, [done])
            self._proposed.append(proposal)
            self._quorum.propose(events, partial(self._committed, proposal))

    def _committed(self, proposal: _Proposal, result: Position | DuramenError) -> None:
        # A refused proposal may be completed before others that wait for their sync.
        self._proposed = deque(other for other in self._proposed if other is not proposal)
        if isinstance(result, Position):
            for event in proposal.events:
                self._apply(event)
        else:
            self._ahead = self.state.copy()
            for later in self._proposed:
                for event in later.events:
                    self._ahead.apply(event)
        for done in proposal.waiting:
            done(None if isinstance(result, Position) else result)
