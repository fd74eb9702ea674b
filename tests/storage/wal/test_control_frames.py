"""Notes in the write-ahead log that wait for room."""

import pytest

from duramen.base.errors import DuramenError
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.wal import Wal

_SECOND_MS = 1000


@pytest.fixture
def doubles() -> StoreOnDoubles:
    doubles = StoreOnDoubles()
    for partition in range(3):
        doubles.append(doubles.log(partition), b"first")
    doubles.settle()
    return doubles


def test_a_note_that_waits_for_room_is_not_overtaken(doubles: StoreOnDoubles, monkeypatch: pytest.MonkeyPatch) -> None:
    room = False
    logs = [doubles.log(partition) for partition in range(3)]
    staged: list[int] = []
    answers: list[DuramenError | None] = []
    stage = Wal.stage

    def staging(wal: Wal, type_: FrameType, log_id: int, payload: bytes) -> int:
        staged.append(log_id)
        return stage(wal, type_, log_id, payload)

    monkeypatch.setattr(Wal, "room", lambda _, __: room)
    monkeypatch.setattr(Wal, "stage", staging)
    doubles.store.follow(logs[0], 9, 7, answers.append)
    doubles.advance(_SECOND_MS)
    assert staged == []
    room = True
    doubles.store.follow(logs[1], 9, 7, answers.append)
    doubles.settle()
    assert staged == []
    doubles.advance(_SECOND_MS)
    assert staged == [one.id for one in logs[:2]]
    assert answers == [None, None]
    doubles.store.follow(logs[2], 9, 7, answers.append)
    doubles.settle()
    assert staged == [one.id for one in logs]
    assert answers == [None] * 3
