"""Leaderships of other nodes in a followed log, recorded before the first batch of each."""

from collections.abc import Callable, Iterator

from duramen.base.errors import DuramenError
from duramen.base.leader_epochs import Takeover
from duramen.storage.log.log import Log
from duramen.storage.log.producers import NO_ID
from duramen.storage.wal.control_frames import Notes
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.records import encode_created, encode_forgotten, encode_takeover

__all__ = ["created_frames", "drop_empty_leaderships", "forget_producers", "introduce"]

Done = Callable[[DuramenError | None], None]


def created_frames(log: Log) -> Iterator[tuple[FrameType, bytes]]:
    """The first WAL frames of a log."""
    yield FrameType.LOG_CREATED, encode_created(log.key, log.durability)
    if log.producers.forgotten_id > NO_ID:
        yield FrameType.PRODUCERS_FORGOTTEN, encode_forgotten(log.producers.forgotten_id)


def introduce(notes: Notes, log: Log, epoch: int, leader_id: int, done: Done) -> None:
    """Record that `leader_id` leads the log from its end on in `epoch`, unless a takeover exists; then call `done`.

    The caller keeps others from appending meanwhile. `done(None)` comes after the write, before its sync: later appends
    come after it.
    """
    if epoch <= log.takeovers.latest_epoch:
        done(None)
        return

    def created() -> None:
        log.written = True

    def staged() -> None:
        log.takeovers.add(takeover)
        log.version += 1
        done(None)

    def failed(error: DuramenError | None) -> None:
        if error is not None and log.takeovers.latest_epoch < epoch:
            done(error)

    if not log.written:
        for type_, payload in created_frames(log):
            notes.write(type_, log, payload, lambda _: None, staged=created)
    takeover = Takeover(epoch, leader_id, log.end_offset)
    notes.write(FrameType.TAKEOVER, log, encode_takeover(*takeover), failed, staged=staged)


def forget_producers(notes: Notes, log: Log, done: Done) -> None:
    """Record which producers the log may have forgotten; `done` as in `introduce`.

    A log without frames records it with its first ones.
    """
    if not log.written:
        done(None)
        return
    told: list[DuramenError | None] = []

    def tell(error: DuramenError | None) -> None:
        if not told:
            told.append(error)
            done(error)

    payload = encode_forgotten(log.producers.forgotten_id)
    notes.write(FrameType.PRODUCERS_FORGOTTEN, log, payload, tell, staged=lambda: tell(None))


def drop_empty_leaderships(log: Log) -> None:
    """Drop leaderships without records in the log: an earlier leadership may write at the same offset.

    A power loss leaves such a takeover if it lost the batch after it, and the deletion of all records leaves those
    before. Both checkpoints are written before the next append, so that no recovery finds the takeover again.
    """
    end_offset = log.end_offset if log.start_offset < log.end_offset else 0
    if any(takeover.first_offset >= end_offset for takeover in log.takeovers):
        log.takeovers.cut(end_offset)
        log.version += 1
        log.cut_again = True
