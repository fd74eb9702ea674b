"""The share coordinator: the leader of a partition of `__share_group_state` turns requests into shard commands."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, NotCoordinator, RequestInvalid
from duramen.base.ids import StreamId
from duramen.base.ports import StateRows
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.coordinators.share.requests import ChangeStates, ReadState, StatesChanged, Was, WriteState, share_key
from duramen.coordinators.share.shard import ForgetStates, Renew, ShareCommand, Tidied, Tidy
from duramen.coordinators.share.state import SHARE_STATE_STREAM, Kept, StateStream, snapshot_offsets
from duramen.groups.share_records import ShareKey
from duramen.rpc.server import Done as Answered
from duramen.storage.store import Store

__all__ = ["ShareCoordinator"]

_MOST_RECORDS: Final = 100_000


class ShareCoordinator:
    """The states in the partitions that this node leads."""

    def __init__(
        self, stream: StateStream, runtime: Runtime, store: Store, is_gone: Callable[[StreamId], bool], *, alone: bool
    ) -> None:
        """`is_gone` tells whether a stream is known to be deleted."""
        self._stream = stream
        self._runtime = runtime
        self._store = store
        self._is_gone = is_gone
        self._alone = alone
        self._missed: set[ShareKey] = set()  # states whose streams were missing at the last check

    # -- requests of other nodes --------------------------------------------------------------------

    def read(self, request: ReadState, done: Answered[Was]) -> None:
        """See `ReadState`."""
        try:
            index = self._stream.place_of(share_key(request.key)).partition
        except DuramenError as error:
            done(error)
        else:
            self._submit(index, request, partial(_respond, done))

    def write(self, request: WriteState, done: Answered[StatesChanged]) -> None:
        """See `WriteState`."""
        self._change([share_key(request.key)], request, request.keeper_epoch, done)

    def change(self, request: ChangeStates, done: Answered[StatesChanged]) -> None:
        """See `ChangeStates`."""
        self._change([share_key(key) for key, _, _ in request.states], request, request.keeper_epoch, done)

    def _change(
        self, keys: Sequence[ShareKey], command: ShareCommand, keeper_epoch: int, done: Answered[StatesChanged]
    ) -> None:
        try:
            found = {self._stream.place_of(key).partition for key in keys}
            if len(found) != 1:
                raise RequestInvalid("the states of one partition are changed at a time")
            # A late request for an earlier keeper: others have written since.
            epoch = self._stream.keeper_epoch(keys[0])
            if not self._alone and keeper_epoch != epoch:
                raise NotCoordinator(f"a request to the share coordinator of epoch {keeper_epoch} arrived in {epoch}")
        except DuramenError as error:
            done(error)
        else:
            self._submit(found.pop(), command, partial(_respond, done))

    def _submit(self, index: int, command: ShareCommand, done: Callable[[ShardAnswer | DuramenError], None]) -> None:
        self._runtime.submit(SHARE_STATE_STREAM, index, command, done)

    # -- states of this node ------------------------------------------------------------------------

    def each(self, done: Callable[[list[Kept]], None]) -> None:
        """Every share partition that this node keeps."""
        found, count = list[Kept](), len(self._stream.partitions)
        parts = Countdown(partial(done, found), count + 1)

        def answered(kept: object) -> None:
            if isinstance(kept, list):
                found.extend(kept)
            parts.count_down()

        for index in range(count):
            self._runtime.read(SHARE_STATE_STREAM, index, _kept, answered)
        parts.count_down()

    def forget_topics(self, gone: Callable[[StreamId], bool]) -> None:
        """Topics are deleted."""
        self.each(lambda kept: self._forget(key for key, _ in kept if gone(key.topic_id)))

    def forget_deleted(self, kept: Iterable[ShareKey]) -> None:
        """Delete states of deleted streams, after the start of a standalone node.

        A crash may have come between a stream's deletion and that of its states.
        """
        self._forget(key for key in kept if self._is_gone(key.topic_id))

    def _forget(self, keys: Iterable[ShareKey]) -> None:
        by_partition: dict[int, list[ShareKey]] = {}
        for key in keys:
            by_partition.setdefault(self._stream.place_of(key).partition, []).append(key)
        for index, mine in by_partition.items():
            self._submit(index, ForgetStates(tuple(mine)), _nobody)

    # -- letting go ---------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Truncate the log, and drop memory of unused states."""
        self.each(self._tidy)

    def _tidy(self, kept: Sequence[Kept]) -> None:
        # A new leader may not know a new stream yet: two checks are long enough.
        gone = {key for key, _ in kept if self._is_gone(key.topic_id)}
        self._forget(sorted(gone & self._missed))
        self._missed = gone - self._missed
        command = Tidy(frozenset(key.group for key, _ in kept))
        for index in range(len(self._stream.partitions)):
            # The state read after this is at least as new.
            applied_offset = self._runtime.applied_offset(SHARE_STATE_STREAM, index)
            self._submit(index, command, partial(self._tidied, index, applied_offset))

    def _tidied(self, index: int, applied_offset: int, answer: ShardAnswer | DuramenError) -> None:
        """Truncate a partition of the log below the oldest valid snapshot.

        If too many records are left, the states of the older half get new snapshots.
        """
        if isinstance(answer, DuramenError) or not isinstance(answer.response, Tidied):
            return
        log, kept = self._stream.partitions[index].log, answer.response.kept
        oldest = min([applied_offset, log.high_watermark, *(offset for _, offset in kept)])
        if log.high_watermark - log.start_offset > _MOST_RECORDS:
            for key, offset in kept:
                if log.high_watermark - offset > _MOST_RECORDS // 2:
                    self._submit(index, Renew(key), _nobody)
        if log.start_offset < oldest:
            self._store.delete_before(log, oldest, lambda _: None)


def _kept(_: object, rows: StateRows) -> list[Kept]:
    return list(snapshot_offsets(rows))


def _respond(done: Callable[..., None], answer: ShardAnswer | DuramenError) -> None:
    done(answer if isinstance(answer, DuramenError) else answer.response)


def _nobody(_: object) -> None:
    """The next cleanup of the log checks it again."""
