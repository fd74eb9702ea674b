"""Share partition states in a partition of `__share_group_state`: one change after the other, fenced. Pure.

Decisions about a state use its committed value, because no other change of it is in progress. In memory are the fences
of states in use, and values that do not outlive a leader: the epochs of requests, and the sequence of the last change
(docs/adr/share-state.md).
"""

from collections.abc import Collection, Hashable, Iterator
from typing import Final, NamedTuple

from duramen.base.errors import NotCoordinator, RequestInvalid, ShareGroupUnknown
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, RowKind, ShardKind
from duramen.coordinators.share.requests import (
    ChangeStates,
    ReadState,
    StateChange,
    StatesChanged,
    Was,
    WriteState,
    share_key,
    states_of,
)
from duramen.coordinators.share.state import (
    SHARE_STATE_STREAM,
    Kept,
    changes,
    find_state,
    find_updates,
    read_record,
    snapshot_offsets,
)
from duramen.groups.share_fencing import ANYBODY, StateFence, begun_anew, forgotten, read_by, written_by
from duramen.groups.share_records import (
    ShareKey,
    ShareState,
    ShareUpdate,
    encode_key,
    encode_snapshot,
    encode_update,
    merged,
)

__all__ = ["ForgetStates", "Renew", "ShareCommand", "ShareStateShard", "Tidied", "Tidy", "share_state_kind"]

_CHECKPOINT_RECORDS: Final = 20_000
_LATELY_MS: Final = 600_000  # no request is repeated after this long

Row = tuple[bytes, bytes | None]
"""A record's key, and its value; None is a tombstone."""


class ForgetStates(NamedTuple):
    """Delete states whose stream is deleted."""

    keys: tuple[ShareKey, ...]


class Renew(NamedTuple):
    """Store a snapshot of a state, so that the log can be truncated below it."""

    key: ShareKey


class Tidy(NamedTuple):
    """Drop memory of states without recent requests, and of groups that are not among these."""

    groups: frozenset[str]


class Tidied(NamedTuple):
    """All stored states, with the offsets of their snapshots."""

    kept: tuple[Kept, ...]


ShareCommand = ReadState | WriteState | ChangeStates | ForgetStates | Renew | Tidy


class _Asked(NamedTuple):
    """The newest leader that has read a state, and the time of its request."""

    leader_epoch: int
    sequence: int
    at_ms: int


class ShareStateShard(CoordinatorShard[ShareCommand]):
    """The state machine; `alone`: no other node can lead the partition."""

    def __init__(self, *, alone: bool, updates_per_snapshot: int) -> None:
        self._alone = alone
        self._updates_per_snapshot = updates_per_snapshot
        self._asked: dict[ShareKey, _Asked] = {}
        self._stored: dict[ShareKey, StateFence] = {}  # as stored in the rows
        self.coordinated: dict[str, int] = {}
        """The newest coordinator epoch of each group.

        It is enough to remember it while this node keeps the state: a new coordinator first makes sure that the states
        which another has begun to change exist, and names its epoch; and a coordinator that knows a newer keeper knows
        of every coordinator that was elected before.
        """

    def keys_of(self, command: ShareCommand) -> Collection[Hashable]:
        match command:
            case ReadState() | WriteState():
                return (share_key(command.key),)
            case ChangeStates():
                return [share_key(key) for key, _, _ in command.states]
            case ForgetStates():
                return command.keys
            case Renew():
                return (command.key,)
            case Tidy():
                return ()

    def decide(self, command: ShareCommand, rows: StateRows, now_ms: int) -> Decision:
        match command:
            case ReadState():
                return self._read(command, rows, now_ms)
            case WriteState():
                return self._write(command, rows, now_ms)
            case ChangeStates():
                return self._change(command, rows, now_ms)
            case ForgetStates():
                gone = [key for key in command.keys if self._forgotten(key, self._find(key, rows), now_ms)]
                return Decision([(encode_key(key), None) for key in gone], None)
            case Renew():
                state = find_state(rows, command.key)
                return Decision([] if state is None else [_renewed(command.key, state, now_ms)], None)
            case Tidy():
                return Decision((), self._tidy(command, rows, now_ms))

    def apply(self, record: DecodedRecord) -> None:
        stored = read_record(record)
        fence = None if stored is None else self._stored.get(stored.key)
        if stored is None or fence is None:
            return
        match stored.value:
            case ShareUpdate():
                newest = max(fence.leader_epoch, stored.value.leader_epoch)
                self._stored[stored.key] = fence._replace(leader_epoch=newest, updates=fence.updates + 1)
            case ShareState():
                self._stored[stored.key] = _fence(stored.value, 0)
            case None:
                self._stored[stored.key] = StateFence()

    def loaded(self, rows: StateRows) -> Iterator[None]:
        """Nothing is loaded before it is requested."""
        del rows
        self._stored.clear()
        return iter(())

    # -- requests of leaders of partitions ---------------------------------------------------------

    def _read(self, request: ReadState, rows: StateRows, now_ms: int) -> Decision:
        """The stored state of a share partition, with everything that was acknowledged to older leaders."""
        key = share_key(request.key)
        fence = read_by(self._find(key, rows), request.leader_epoch)
        state = find_state(rows, key)
        if state is None:
            raise ShareGroupUnknown("its state was deleted")
        self._note(key, fence, now_ms)
        if self._alone or request.leader_epoch == ANYBODY or fence.leader_epoch <= state.leader_epoch:
            return Decision((), Was.of(state))
        # From here on the log has nothing of an older leader, whichever node keeps the state.
        barrier = ShareUpdate(ANYBODY, (), fence.snapshot_epoch, fence.leader_epoch)
        return Decision([_row(key, barrier)], Was.of(merged(state, [barrier])))

    def _write(self, request: WriteState, rows: StateRows, now_ms: int) -> Decision:
        """A leader changes a state that it has read."""
        key = share_key(request.key)
        fence = written_by(
            self._find(key, rows), request.state_epoch, request.leader_epoch, request.sequence, len(request.updates)
        )
        updates = [
            ShareUpdate(start, states_of(spoken), fence.snapshot_epoch, fence.leader_epoch)
            for start, spoken in request.updates
        ]
        self._note(key, fence, now_ms)
        state = find_state(rows, key) if fence.updates > self._updates_per_snapshot else None
        if state is not None:
            records = [_renewed(key, merged(state, updates), now_ms)]
        else:
            records = [_row(key, update) for update in updates]
        return Decision(records, StatesChanged())

    # -- requests of coordinators of groups --------------------------------------------------------

    def _change(self, request: ChangeStates, rows: StateRows, now_ms: int) -> Decision:
        """Create, reset or delete states."""
        begins = [(share_key(key), start, epoch) for key, start, epoch in request.states]
        for key, _, _ in begins:
            self._check_coordinator(key.group, request.coordinator_epoch)
        changed: dict[ShareKey, Row] = {}
        for key, start, leader_epoch in begins:
            if key in changed:
                raise RequestInvalid(f"partition {key.partition} of share group {key.group} is named twice")
            row = self._changed(request.change, key, self._find(key, rows), start, leader_epoch, now_ms)
            if row is not None:
                changed[key] = row
        return Decision(list(changed.values()), StatesChanged())

    def _changed(
        self, change: StateChange, key: ShareKey, found: StateFence, start: int, leader_epoch: int, now_ms: int
    ) -> Row | None:
        """The record of the change; None if there is nothing to change."""
        if change is StateChange.FORGET:
            return (encode_key(key), None) if self._forgotten(key, found, now_ms) else None
        if change is StateChange.BEGIN and found.there:
            return None
        fence = begun_anew(found, leader_epoch)
        self._note(key, fence, now_ms)
        state = ShareState(start, (), fence.snapshot_epoch, fence.state_epoch, fence.leader_epoch)
        return _whole(key, state, now_ms)

    def _forgotten(self, key: ShareKey, found: StateFence, now_ms: int) -> bool:
        """Whether the state exists and is to be deleted."""
        self._note(key, forgotten(found), now_ms)
        return found.there

    def _check_coordinator(self, group: str, coordinator_epoch: int) -> None:
        """Raise NotCoordinator if a newer coordinator of the group has sent a request."""
        newest = self.coordinated.get(group, coordinator_epoch)
        if coordinator_epoch < newest:
            raise NotCoordinator(f"share group {group} is coordinated in epoch {newest}, not {coordinator_epoch}")
        self.coordinated[group] = coordinator_epoch

    # -- known states ------------------------------------------------------------------------------

    def _find(self, key: ShareKey, rows: StateRows) -> StateFence:
        fence, asked = self._stored.get(key), self._asked.get(key)
        if fence is None:
            state = find_state(rows, key)
            fence = StateFence() if state is None else _fence(state, len(find_updates(rows, key)))
            self._stored[key] = fence
        if asked is not None and asked.leader_epoch >= fence.leader_epoch:
            return fence._replace(leader_epoch=asked.leader_epoch, sequence=asked.sequence)
        return fence

    def _note(self, key: ShareKey, fence: StateFence, now_ms: int) -> None:
        self._asked[key] = _Asked(fence.leader_epoch, fence.sequence, now_ms)

    # -- letting go --------------------------------------------------------------------------------

    def _tidy(self, command: Tidy, rows: StateRows, now_ms: int) -> Tidied:
        self.coordinated = {group: epoch for group, epoch in self.coordinated.items() if group in command.groups}
        self._asked = {key: asked for key, asked in self._asked.items() if now_ms - asked.at_ms < _LATELY_MS}
        self._stored = {key: fence for key, fence in self._stored.items() if key in self._asked}
        return Tidied(tuple(snapshot_offsets(rows)))


def share_state_kind(*, alone: bool, updates_per_snapshot: int) -> ShardKind[ShareCommand]:
    """The shard kind. Its log is truncated below the oldest valid snapshot."""

    def make(_: int) -> CoordinatorShard[ShareCommand]:
        return ShareStateShard(alone=alone, updates_per_snapshot=updates_per_snapshot)

    rows = RowKind(changes, _CHECKPOINT_RECORDS, is_cut=False, has_memory=True)
    cost = "so what a share group acknowledged there may be delivered again"
    return ShardKind(SHARE_STATE_STREAM, make, rows, cost)


def _fence(state: ShareState, updates: int) -> StateFence:
    return StateFence(
        True, state.state_epoch, state.leader_epoch, snapshot_epoch=state.snapshot_epoch, updates=updates
    )  # fmt: skip


def _row(key: ShareKey, update: ShareUpdate) -> Row:
    return encode_key(key, update=True), encode_update(update)


def _renewed(key: ShareKey, state: ShareState, now_ms: int) -> Row:
    """The record of the next snapshot."""
    return _whole(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1), now_ms)


def _whole(key: ShareKey, state: ShareState, now_ms: int) -> Row:
    """The record that stores a state as a whole."""
    stamped = state._replace(created_ms=state.created_ms or now_ms, written_ms=now_ms)
    return encode_key(key), encode_snapshot(stamped)
