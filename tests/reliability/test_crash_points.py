"""The power goes, or the process ends, between any two calls that reach the disk: of a roll, of retention, of a cut."""

from collections.abc import Callable

import pytest
from tests.reliability.support import SURVIVALS, come_back

from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import LogConfig

_SEGMENT_BYTES = 700
_RECORDS = 30

Action = Callable[[StoreOnDoubles], None]
Check = Callable[[StoreOnDoubles, list[AppendOutcome]], None]


def _value(offset: int) -> bytes:
    return b"%03d" % offset + b"." * 100


def _prepared() -> StoreOnDoubles:
    """Thirty records in segments of a few, all copied and in a checkpoint."""
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=_SEGMENT_BYTES))
    for offset in range(_RECORDS):
        doubles.append(log, _value(offset))
    doubles.settle()
    doubles.advance(61_000)
    assert len(log.segments) > 5
    return doubles


def _between_any_two_calls(
    action: Action, survives: str, check: Callable[[StoreOnDoubles, list[AppendOutcome]], None]
) -> int:
    """Crash after each call that `action` and what follows from it makes; returns how many there are."""
    doubles = _prepared()
    before = doubles.files.calls
    action(doubles)
    calls = doubles.files.calls - before
    for call in range(1, calls + 1):
        doubles = _prepared()
        doubles.files.crash_at = doubles.files.calls + call
        with pytest.raises(Crashed):
            action(doubles)
        doubles.files.crash_at = None
        come_back(doubles, survives, call)
        assert doubles.findings == []
        check(doubles, [])
        for _ in range(2):
            offset = doubles.log().end_offset
            appended = doubles.append(doubles.log(0, LogConfig(segment_bytes=_SEGMENT_BYTES)), _value(offset))
            doubles.settle()
            assert appended.base_offset == offset
            doubles.advance(61_000)
            check(doubles, [appended])
            come_back(doubles, survives, call)
            check(doubles, [appended])
    return calls


def _whole(doubles: StoreOnDoubles, appended: list[AppendOutcome]) -> None:
    """Dense from the log's start, every record as it was written, and all that was acknowledged."""
    log = doubles.log()
    assert [record.offset for record in doubles.read(log)] == list(range(log.start_offset, log.high_watermark))
    assert doubles.values(log) == [_value(offset) for offset in range(log.start_offset, log.high_watermark)]
    assert log.high_watermark >= _RECORDS
    for append in appended:
        assert (append.base_offset or 0) < log.high_watermark


@pytest.mark.variants(2)
@pytest.mark.parametrize("survives", SURVIVALS)
def test_between_any_two_calls_of_a_roll(survives: str) -> None:
    def roll(doubles: StoreOnDoubles) -> None:
        for offset in range(_RECORDS, _RECORDS + 14):
            doubles.append(doubles.log(), _value(offset))
        doubles.settle()
        doubles.advance(1000)
        doubles.advance(61_000)

    def check(doubles: StoreOnDoubles, appended: list[AppendOutcome]) -> None:
        _whole(doubles, appended)
        assert doubles.log().start_offset == 0

    assert _between_any_two_calls(roll, survives, check) > 10


@pytest.mark.variants(len(SURVIVALS))
@pytest.mark.parametrize("survives", SURVIVALS)
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_between_any_two_calls_of_retention(survives: str, durability: str) -> None:
    config = LogConfig(segment_bytes=_SEGMENT_BYTES, retention_records=8)
    bases = [segment.base_offset for segment in _prepared().log().segments]

    def retain(doubles: StoreOnDoubles) -> None:
        doubles.log(0, config._replace(durability=durability))
        doubles.append(doubles.log(), _value(_RECORDS))
        doubles.settle()
        doubles.store.enforce_retention(doubles.clock.wall_ms())
        doubles.settle()
        for _ in range(3):
            doubles.advance(61_000)
        assert doubles.log().start_offset > 10

    def check(doubles: StoreOnDoubles, appended: list[AppendOutcome]) -> None:
        if durability == "sync" or survives == "every write":
            _whole(doubles, appended)
        log = doubles.log()
        assert log.start_offset == 0 or log.start_offset in bases or log.start_offset > max(bases)
        files = [name for name in doubles.files.names(log.directory) if name.endswith(".log")]
        known = {segment.path.rpartition("/")[2] + ".log" for segment in log.segments}
        assert known >= set(files) or survives != "every write", "a file that no log knows"

    assert _between_any_two_calls(retain, survives, check) > 5


@pytest.mark.variants(2)
@pytest.mark.parametrize("survives", SURVIVALS)
def test_a_start_that_was_told_to_be_durable_never_goes_back(survives: str) -> None:
    """What DeleteRecords was answered holds over a crash: nothing that was deleted comes back."""

    def move(doubles: StoreOnDoubles) -> None:
        doubles.store.move_start(doubles.log(), 17)
        doubles.settle()
        told.append(doubles.log().start_offset)
        doubles.advance(61_000)

    told: list[int] = []

    def check(doubles: StoreOnDoubles, appended: list[AppendOutcome]) -> None:
        _whole(doubles, appended)
        assert doubles.log().start_offset in (0, 17)
        if told:
            assert doubles.log().start_offset == 17

    doubles = _prepared()
    before = doubles.files.calls
    move(doubles)
    for call in range(1, doubles.files.calls - before + 1):
        told.clear()
        doubles = _prepared()
        doubles.files.crash_at = doubles.files.calls + call
        with pytest.raises(Crashed):
            move(doubles)
        doubles.files.crash_at = None
        for _ in range(2):
            come_back(doubles, survives, call)
            check(doubles, [])


@pytest.mark.parametrize("survives", SURVIVALS)
def test_between_any_two_calls_of_the_deletion_of_a_log(survives: str) -> None:
    def delete(doubles: StoreOnDoubles) -> None:
        answered: list[object] = []
        doubles.store.delete(doubles.log(), answered.append)
        doubles.settle()
        told.extend(answered)
        doubles.advance(61_000)

    told: list[object] = []
    doubles = _prepared()
    before = doubles.files.calls
    delete(doubles)
    for call in range(1, doubles.files.calls - before + 1):
        told.clear()
        doubles = _prepared()
        old = doubles.log()
        doubles.files.crash_at = doubles.files.calls + call
        with pytest.raises(Crashed):
            delete(doubles)
        doubles.files.crash_at = None
        come_back(doubles, survives, call)
        found = doubles.store.log(old.key)
        assert found is None or not told, "a log came back after its deletion was durable"
        if found is not None:
            assert doubles.values(found) == [_value(offset) for offset in range(_RECORDS)]
        else:
            new = doubles.log()
            assert new.id > old.id
            doubles.append(new, b"new")
            doubles.settle()
            come_back(doubles, survives, call)
            assert doubles.values(doubles.log()) == [b"new"]
