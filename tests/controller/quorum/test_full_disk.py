"""The metadata log on a disk that is full from some call on: each step waits for room, and none ends for good."""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from duramen.base.errors import DuramenError
from duramen.controller.quorum.entries import encode_events, written
from duramen.controller.quorum.log import MetadataLog
from duramen.metadata.events import GroupConfigured
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import NO_VOTERS
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.condition import Condition
from duramen.storage.log.log import LogConfig

NEEDS_SPACE: Final = {
    errno.ENOSPC: ("write", "allocate", "create", "rename", "make_directory", "truncate", "sync"),
    errno.EMFILE: ("create",),
}
"""Where a call may fail so; a sync too, where the file system looks for space no sooner."""

LAST: Final = 10

Done = Callable[[DuramenError | None], None]
Step = Callable[[MetadataLog, Done], None]


class Disk:
    """All calls but those to the write-ahead log fail from the `since`-th on, until there is room."""

    def __init__(self, store: StoreOnDoubles, code: int, since: int) -> None:
        self.failed = 0
        self._left = since
        self._code = code
        store.files.interfere = self._interfere

    def _interfere(self, call: str, path: str, size: int) -> int:
        if call in NEEDS_SPACE[self._code] and not path.startswith("wal/"):
            self._left -= 1
            if self._left < 0:
                self.failed += 1
                raise OSError(self._code, os.strerror(self._code))
        return size


def batch(epoch: int, offset: int) -> EntryBatch:
    payload = encode_events([GroupConfigured(f"g{epoch}/{offset}", {"x": "y" * 600})], 0)
    return written(EntryBatch(epoch, offset, 1, payload, NO_VOTERS), 1, NO_VOTERS, 0)


def opened(store: StoreOnDoubles) -> MetadataLog:
    return MetadataLog(store.store, store.log(0, LogConfig(segment_bytes=2_000)), store.clock, 1 << 20)


def filled(store: StoreOnDoubles) -> MetadataLog:
    """Ten entries: some synced in segments, the last ones in memory."""
    metadata = opened(store)
    answers: list[DuramenError | None] = []
    for offset in range(LAST):
        metadata.append(batch(1, offset), answers.append)
        store.settle()
        if offset == LAST - 4:
            store.advance(61_000)  # a checkpoint
    assert answers == [None] * LAST
    return metadata


def append(metadata: MetadataLog, done: Done) -> None:
    metadata.append(batch(2, metadata.end.offset), done)


def then_append(metadata: MetadataLog, done: Done) -> Done:
    def went(error: DuramenError | None) -> None:
        if error is None:
            append(metadata, done)
        else:
            done(error)

    return went


def cut(metadata: MetadataLog, end_offset: int, done: Done) -> None:
    metadata.cut(end_offset, then_append(metadata, done))


def begin_anew(metadata: MetadataLog, start_offset: int, done: Done) -> None:
    metadata.restart(EpochEnd(1, start_offset), then_append(metadata, done))


STEPS: Final[dict[str, tuple[Step, int]]] = {
    "append": (append, LAST + 1),
    "cut the last": (lambda metadata, done: cut(metadata, LAST - 1, done), LAST),
    "cut many": (lambda metadata, done: cut(metadata, 3, done), 4),
    "begin anew": (lambda metadata, done: begin_anew(metadata, LAST + 5, done), LAST + 6),
}


def trials(step: Step, code: int) -> Iterator[tuple[StoreOnDoubles, MetadataLog, list[DuramenError | None]]]:
    """The step, on a disk that is full from each call on that it makes."""
    for since in range(1_000):
        store = StoreOnDoubles()
        metadata = filled(store)
        disk, answers = Disk(store, code, since), list[DuramenError | None]()
        step(metadata, answers.append)
        for _ in range(5):
            store.advance(1_000)
        yield store, metadata, answers
        if not disk.failed:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("code", NEEDS_SPACE)
@pytest.mark.parametrize("name", STEPS)
def test_each_step_waits_for_room(name: str, code: int) -> None:
    step, end_offset = STEPS[name]
    for store, metadata, answers in trials(step, code):
        condition: Condition = store.store.condition
        assert answers == [None] or (answers == [] and condition.problem is not None)
        store.files.interfere = None
        for _ in range(20):
            store.advance(1_000)
        assert answers == [None]
        assert condition.problem is None
        assert (store.log().end_offset, metadata.end) == (end_offset, EpochEnd(2, end_offset))
        kept = store.values(store.log())
        store.crash()
        assert store.findings == []
        assert (store.log().end_offset, store.values(store.log())) == (end_offset, kept)
