"""Who leads a partition of `__share_group_state` answers for the states in it: one change after the other, fenced.

What is decided about a state is decided on what was appended last of it, committed or not; what is told of it is what
is committed (docs/adr/share-state.md).
"""

from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, RequestInvalid, ShareGroupUnknown
from duramen.base.ids import StreamId
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
from duramen.coordinators.share.state import Row, ShareStates
from duramen.groups.share_fencing import ANYBODY, Fence, begun_anew, forgotten, read_by, written_by
from duramen.groups.share_records import ShareKey, ShareState, ShareUpdate, encode_key, encode_update, merged
from duramen.rpc.server import Done as Answered

__all__ = ["ShareCoordinator"]

_MOST_RECORDS: Final = 100_000

Done = Callable[[DuramenError | None], None]


class _Known:
    """What was appended last of a state. `open` are the records of it that are on their way to the disk."""

    __slots__ = ("fence", "open", "unsure", "used")

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.open = 0
        self.unsure = False  # whether one of them has failed: nobody knows what was appended last
        self.used = True  # since it was looked at whether it is still needed


class ShareCoordinator:
    """The states that are kept in partitions which this node leads."""

    def __init__(self, states: ShareStates, is_gone: Callable[[StreamId], bool], updates_per_snapshot: int) -> None:
        """`is_gone` tells whether a stream is known to have been deleted."""
        self._states = states
        self._is_gone = is_gone
        self._updates_per_snapshot = updates_per_snapshot
        self._known: dict[ShareKey, _Known] = {}
        self._coordinated: dict[str, int] = {}  # the newest epoch in which somebody has coordinated a group
        self._missed: set[ShareKey] = set()  # whose streams were not there when that was last looked at
        states.coordinator = self

    # -- what leaders of partitions ask ------------------------------------------------------------

    def read(self, request: ReadState, done: Answered[Was]) -> None:
        """All that is kept of a share partition, with everything that older leaders were told is stored."""
        key = share_key(request.key)
        try:
            known = self._find(key)
            fence = read_by(known.fence, request.leader_epoch)
        except DuramenError as error:
            done(error)
            return
        newer, known.fence = fence.leader_epoch > known.fence.leader_epoch, fence
        if request.leader_epoch == ANYBODY or self._states.alone or not (newer or known.open):
            done(self._told(key))
            return
        # Behind it in the log comes nothing of an older leader.
        barrier = ShareUpdate(ANYBODY, (), fence.snapshot_epoch, fence.leader_epoch)
        known.fence = fence._replace(updates=fence.updates + 1)
        self._append(
            [(key, known)], [_row(key, barrier)],
            lambda error: done(self._told(key) if error is None else error),
        )  # fmt: skip

    def _told(self, key: ShareKey) -> Was | DuramenError:
        try:
            state = self._states.get(key)
        except DuramenError as error:
            return error
        return ShareGroupUnknown("nothing is kept of it any more") if state is None else Was.of(state)

    def write(self, request: WriteState, done: Answered[StatesChanged]) -> None:
        """A leader changes a state that it has read."""
        key = share_key(request.key)
        try:
            self._check_keeper(key, request.keeper_epoch)
            known = self._find(key)
            fence = written_by(
                known.fence, request.state_epoch, request.leader_epoch, request.sequence, len(request.updates)
            )
            updates = [
                ShareUpdate(start, states_of(spoken), fence.snapshot_epoch, fence.leader_epoch)
                for start, spoken in request.updates
            ]
            if fence.updates > self._updates_per_snapshot and not known.open:
                fence, rows = self._whole(key, fence, updates)
            else:
                rows = [_row(key, update) for update in updates]
        except DuramenError as error:
            done(error)
            return
        known.fence = fence
        self._append([(key, known)], rows, lambda error: done(StatesChanged() if error is None else error))

    def _whole(self, key: ShareKey, fence: Fence, updates: Sequence[ShareUpdate]) -> tuple[Fence, list[Row]]:
        """A snapshot of what is committed, with `updates`: while others are on their way it would not be the whole."""
        state = self._states.get(key)
        if state is None:
            raise ShareGroupUnknown("nothing is kept of it any more")
        whole = merged(state, updates)._replace(snapshot_epoch=fence.snapshot_epoch + 1)
        return (
            fence._replace(snapshot_epoch=whole.snapshot_epoch, updates=0),
            [self._states.snapshot(key, whole)],
        )

    # -- what coordinators of groups ask -----------------------------------------------------------

    def change(self, request: ChangeStates, done: Answered[StatesChanged]) -> None:
        """States of one partition of the stream begin, begin anew or are forgotten."""
        changed: list[tuple[ShareKey, _Known]] = []
        rows: list[Row] = []
        try:
            if len({self._states.place_of(share_key(key)) for key, _, _ in request.states}) != 1:
                raise RequestInvalid("the states of one partition are changed at a time")
            found = [(share_key(key), start, epoch) for key, start, epoch in request.states]
            for key, _, _ in found:
                self._check_keeper(key, request.keeper_epoch)
                self._check_coordinator(key.group, request.coordinator_epoch)
            known = {key: self._find(key) for key, _, _ in found}
            for key, start, leader_epoch in found:
                row = self._changed(request.change, key, known[key], start, leader_epoch)
                if row is not None:
                    changed.append((key, known[key]))
                    rows.append(row)
        except DuramenError as error:
            done(error)
            return
        if rows:
            self._append(changed, rows, lambda error: done(StatesChanged() if error is None else error))
        else:
            done(StatesChanged())

    def _changed(self, change: StateChange, key: ShareKey, known: _Known, start: int, leader_epoch: int) -> Row | None:
        """The record that makes it so; None where it is so, durably."""
        fence = known.fence
        if change is StateChange.FORGET:
            known.fence = forgotten(fence)
            return (encode_key(key), None) if fence.there or known.open else None
        if change is StateChange.BEGIN and fence.there:
            if not known.open:
                return None
            known.fence = fence._replace(updates=fence.updates + 1)
            return _row(key, ShareUpdate(ANYBODY, (), fence.snapshot_epoch, fence.leader_epoch))
        known.fence = fence = begun_anew(fence, leader_epoch)
        return self._states.snapshot(
            key, ShareState(start, (), fence.snapshot_epoch, fence.state_epoch, fence.leader_epoch)
        )

    # -- whom it is meant for, and from whom it comes ------------------------------------------------

    def _check_keeper(self, key: ShareKey, keeper_epoch: int) -> None:
        """Raise NotCoordinator for what was meant for an earlier keeper: others have said more since then."""
        epoch = self._states.keeper_epoch(key)
        if not self._states.alone and keeper_epoch != epoch:
            raise NotCoordinator(f"what is asked of who keeps the state in epoch {keeper_epoch} comes in {epoch}")

    def _check_coordinator(self, group: str, coordinator_epoch: int) -> None:
        """Raise NotCoordinator where a newer coordinator of the group has asked.

        To remember it for as long as this node keeps the state is enough: who takes over first sees to it that the
        states which another has begun to change are there, and says so with its epoch; and who hears of a newer keeper
        has heard of every coordinator that was elected before.
        """
        newest = self._coordinated.get(group, coordinator_epoch)
        if coordinator_epoch < newest:
            raise NotCoordinator(f"share group {group} is coordinated in epoch {newest}, not {coordinator_epoch}")
        self._coordinated[group] = coordinator_epoch

    # -- what was appended last --------------------------------------------------------------------

    def _find(self, key: ShareKey) -> _Known:
        """Raises NotCoordinator, CoordinatorLoading, StorageFailed."""
        self._states.check(key)
        known = self._known.get(key)
        if known is not None and known.unsure:
            if known.open:
                raise CoordinatorLoading("what could not be stored has to be looked at first")
            known = None
        if known is None:
            known = self._known[key] = _Known(self._stored(key))
        known.used = True
        return known

    def _stored(self, key: ShareKey) -> Fence:
        state = self._states.get(key)
        if state is None:
            return Fence()
        return Fence(
            True, state.state_epoch, state.leader_epoch,
            snapshot_epoch=state.snapshot_epoch, updates=len(self._states.updates(key)),
        )  # fmt: skip

    def _append(self, changed: Sequence[tuple[ShareKey, _Known]], rows: Sequence[Row], done: Done) -> None:
        for _, known in changed:
            known.open += 1

        def appended(error: DuramenError | None) -> None:
            for _, known in changed:
                known.open -= 1
                known.unsure = known.unsure or error is not None
            done(error)

        self._states.append(self._states.place_of(changed[0][0]).partition, rows, appended)

    # -- the node ----------------------------------------------------------------------------------

    def let_go(self, index: int) -> None:
        """A partition is led by another node, or has to be taken in again."""
        for key in [key for key in self._known if self._states.place_of(key).partition == index]:
            del self._known[key]

    def forget_stream(self, stream_id: StreamId) -> None:
        """A stream is deleted."""
        self._forget([key for key in self._states.each() if key.topic_id == stream_id])

    def forget_deleted(self) -> None:
        """After the start of a node that is alone: a crash may have come between a stream's deletion and this."""
        self._forget([key for key in self._states.each() if self._is_gone(key.topic_id)])

    def _forget(self, keys: Sequence[ShareKey]) -> None:
        by_partition: dict[int, list[ShareKey]] = {}
        for key in keys:
            by_partition.setdefault(self._states.place_of(key).partition, []).append(key)
        for mine in by_partition.values():
            known = [(key, self._find(key)) for key in mine]
            for _, one in known:
                one.fence = forgotten(one.fence)
            self._append(known, [(encode_key(key), None) for key in mine], lambda _: None)

    def tidy(self) -> None:
        """Cut the log, and keep nothing in memory of states that nobody asks for."""
        # Where this node has begun to lead it may not have heard of a new stream yet: twice is long enough.
        kept = set(self._states.each())
        gone = {key for key in kept if self._is_gone(key.topic_id)}
        groups = {key.group for key in kept}
        self._coordinated = {group: epoch for group, epoch in self._coordinated.items() if group in groups}
        self._forget(sorted(gone & self._missed))
        self._missed = gone - self._missed
        self._states.prune(_MOST_RECORDS, self._rewrite)
        for key, known in list(self._known.items()):
            if not (known.used or known.open):
                del self._known[key]
            known.used = False

    def _rewrite(self, key: ShareKey) -> None:
        """Store a snapshot now, unless something else is being stored."""
        known = self._find(key)
        if not known.open and known.fence.there:
            known.fence, rows = self._whole(key, known.fence, ())
            self._append([(key, known)], rows, lambda _: None)


def _row(key: ShareKey, update: ShareUpdate) -> Row:
    return encode_key(key, update=True), encode_update(update)
