"""Notes in the write-ahead log that wait for room."""

import pytest

from duramen.base.errors import DuramenError
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log
from duramen.storage.wal.control_frames import Notes
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.wal import Wal

_SECOND_MS = 1000


@pytest.fixture
def doubles() -> StoreOnDoubles:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"first")
    doubles.settle()
    return doubles


def test_a_note_that_waits_for_room_is_not_overtaken(doubles: StoreOnDoubles, monkeypatch: pytest.MonkeyPatch) -> None:
    room = False
    staged: list[bytes] = []
    answers: list[DuramenError | None] = []
    stage = Wal.stage

    def staging(wal: Wal, type_: FrameType, log_id: int, payload: bytes) -> int:
        staged.append(payload)
        return stage(wal, type_, log_id, payload)

    monkeypatch.setattr(Wal, "room", lambda _, __: room)
    monkeypatch.setattr(Wal, "stage", staging)
    notes, log = _notes_of(doubles), doubles.log()
    _roll(notes, log, b"1", answers)
    doubles.advance(_SECOND_MS)
    assert staged == []
    room = True
    _roll(notes, log, b"2", answers)
    doubles.settle()
    assert staged == []
    doubles.advance(_SECOND_MS)
    assert staged == [b"1", b"2"]
    assert answers == [None, None]
    _roll(notes, log, b"3", answers)
    doubles.settle()
    assert staged == [b"1", b"2", b"3"]
    assert answers == [None] * 3


def _roll(notes: Notes, log: Log, payload: bytes, answers: list[DuramenError | None]) -> None:
    notes.write(FrameType.ROLL, log, payload, answers.append)


def _notes_of(doubles: StoreOnDoubles) -> Notes:
    store = doubles.store
    return Notes(store._wal, doubles.worker, doubles.clock, doubles.deadlines, store.flush)
