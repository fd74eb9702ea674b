"""Damage on the disk: found, named with file and position, contained; what lies around it stays readable."""

from collections.abc import Callable

import pytest
from tests.reliability.support import LOGS, busy, one_by_one

from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.wal.frames import FRAME_HEADER_BYTES

_BATCHES = 120
_BATCH_BYTES = 1070
_VALUES = {number: b"%03d" % number + b"." * 997 for number in range(_BATCHES)}


def _written(segment_bytes: int = 1 << 30, durability: str = "sync") -> tuple[StoreOnDoubles, Log]:
    """A log of batches of one record each, all copied and in a checkpoint."""
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=segment_bytes, durability=durability))
    for value in _VALUES.values():
        doubles.append(log, value)
    doubles.settle()
    doubles.advance(61_000)
    assert all(segment.copied == segment.size for segment in log.segments)
    return doubles, log


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("byte", [70, 500, 1069], ids=["length of the record", "value", "last byte"])
def test_one_bit_flipped_in_a_record(byte: int, restarted: bool) -> None:
    for bit in (0, 3, 7):
        doubles, log = _written()
        path = log.active.path + ".log"
        start = 70 * _BATCH_BYTES
        doubles.files.corrupt(path, start + byte, 1 << bit)
        if restarted:
            doubles.restart()
        good, bad = one_by_one(doubles, doubles.log())
        assert good == {offset: value for offset, value in _VALUES.items() if offset != 70}
        assert list(bad) == [70]
        assert path in bad[70]
        assert str(start) in bad[70]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_one_bit_flipped_in_a_batch_header_s_offset(restarted: bool) -> None:
    for byte, bit in ((7, 0), (7, 6), (4, 0), (0, 7)):
        doubles, log = _written()
        path = log.active.path + ".log"
        doubles.files.corrupt(path, 70 * _BATCH_BYTES + byte, 1 << bit)
        if restarted:
            doubles.restart()
        good, bad = one_by_one(doubles, doubles.log())
        assert list(bad) == [70]
        assert path in bad[70]
        assert str(70 * _BATCH_BYTES) in bad[70]
        assert good == {offset: value for offset, value in _VALUES.items() if offset != 70}


@pytest.mark.parametrize("place", ["frame header", "batch header", "record"])
def test_one_bit_flipped_in_a_wal_frame_that_a_later_one_vouches_for(place: str) -> None:
    at = {"frame header": 5, "batch header": FRAME_HEADER_BYTES + 7, "record": FRAME_HEADER_BYTES + 70}[place]
    for bit in range(8):
        doubles = StoreOnDoubles()
        ends = []
        for number in range(6):
            for log in range(LOGS):
                doubles.append(doubles.log(log), b"batch %d" % number)
                ends.append(doubles.store.wal_end & 0xFFFFFFFF)
            doubles.settle()
        doubles.files.corrupt("wal/000000.wal", ends[7] + at, 1 << bit)  # the third batch of the last log
        doubles.kill()
        assert any(
            "wal/000000.wal" in found and f"from byte {ends[7]} to {ends[8]}" in found for found in doubles.findings
        )
        for number in range(LOGS):
            good, bad = one_by_one(doubles, doubles.log(number))
            damaged = number == LOGS - 1
            assert good == {offset: b"batch %d" % offset for offset in range(6) if offset != 2 or not damaged}
            assert list(bad) == ([2] if damaged else [])


Spoil = Callable[[StoreOnDoubles, str], None]


def _cut(share: float) -> Spoil:
    def cut(doubles: StoreOnDoubles, path: str) -> None:
        file = doubles.files.open(path)
        file.truncate(int(file.size() * share))

    return cut


def _flip(share: float) -> Spoil:
    def flip(doubles: StoreOnDoubles, path: str) -> None:
        doubles.files.corrupt(path, int((doubles.files.open(path).size() - 1) * share))

    return flip


def _zero(doubles: StoreOnDoubles, path: str) -> None:
    file = doubles.files.open(path)
    file.write([bytes(file.size())], 0)


def _remove(doubles: StoreOnDoubles, path: str) -> None:
    doubles.files.unlink(path)


_SPOILT = {
    "removed": _remove, "zeroed": _zero, "empty": _cut(0), "cut": _cut(0.6), "flipped at its start": _flip(0),
    "flipped in its middle": _flip(0.5), "flipped at its end": _flip(1),
}  # fmt: skip


@pytest.mark.parametrize("how", _SPOILT)
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_damaged_index_is_made_anew_and_the_data_is_unchanged(how: str, end: str, durability: str) -> None:
    doubles, log = _written(segment_bytes=60_000, durability=durability)
    paths = [segment.path + ".index" for segment in log.segments if segment.size]
    assert len(paths) > 2
    for damaged in (paths, *([path] for path in paths)):
        for path in damaged:
            _SPOILT[how](doubles, path)
        if end == "stop":
            doubles.restart()
        else:
            doubles.kill()
        assert one_by_one(doubles, doubles.log()) == (_VALUES, {})
        assert doubles.findings == []


@pytest.mark.parametrize("missing", [False, True], ids=["cut", "missing"])
@pytest.mark.parametrize("end", ["running", "stop", "kill", "kill without checkpoints"])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_segment_cut_in_mid_history_is_refused_and_never_taken_for_a_clean_end(
    missing: bool, end: str, durability: str
) -> None:
    for keep in (0, 61, 30 * _BATCH_BYTES, 30 * _BATCH_BYTES + 700):
        doubles, log = _written(segment_bytes=60_000, durability=durability)
        cut = log.segments[1]
        path, first, following = cut.path + ".log", cut.base_offset, log.segments[2].base_offset
        if missing:
            doubles.files.unlink(path)
            log.handles.forget(cut)
        else:
            doubles.files.open(path).truncate(keep)
        if end == "stop":
            doubles.restart()
        elif end != "running":
            if end == "kill without checkpoints":
                for name in doubles.files.paths():
                    if name.startswith("checkpoint-"):
                        doubles.files.unlink(name)
            doubles.kill()
        log = doubles.log()
        whole = 0 if missing else min(keep // _BATCH_BYTES, following - first)
        good, bad = one_by_one(doubles, log)
        assert list(bad) == list(range(first + whole, following))
        assert good == {offset: value for offset, value in _VALUES.items() if offset not in bad}
        if end == "kill without checkpoints":
            assert any(f"offsets {first + whole} to {following - 1}" in finding for finding in doubles.findings)
        else:
            assert all(path in message for message in bad.values())
        assert log.end_offset == _BATCHES, "no offset is given a second time"


def test_the_last_segment_cut_after_a_clean_stop_is_refused_too() -> None:
    doubles, log = _written()
    path = log.active.path + ".log"
    assert doubles.stop() is None
    doubles.files.open(path).truncate(100 * _BATCH_BYTES)
    doubles.boot()
    log = doubles.log()
    appended = doubles.append(log, b"goes on")
    doubles.settle()
    doubles.advance(61_000)
    assert appended.base_offset == _BATCHES
    for _ in range(2):
        good, bad = one_by_one(doubles, doubles.log())
        assert list(bad) == list(range(100, _BATCHES))
        assert good == {**{offset: _VALUES[offset] for offset in range(100)}, _BATCHES: b"goes on"}
        doubles.kill()


def test_an_error_on_reading_is_told_and_nothing_is_taken_for_damaged_forever() -> None:
    doubles, log = _written(segment_bytes=60_000)
    doubles.files.cold = True
    failing = True

    def interfere(call: str, path: str, size: int) -> int:
        if call == "read" and failing and path == log.segments[0].path + ".log":
            raise OSError(5, "Input/output error")
        return size

    doubles.files.interfere = interfere
    with pytest.raises(OSError, match="Input/output error"):
        one_by_one(doubles, log)
    failing = False
    assert one_by_one(doubles, log) == (_VALUES, {})


def _twice_busy(seed: int) -> tuple[StoreOnDoubles, list[AppendOutcome], dict[str, bytes]]:
    """A store after two busy whiles, and its files as they were between them."""
    doubles = StoreOnDoubles()
    appends: list[AppendOutcome] = []
    busy(doubles, appends, seed)
    doubles.advance(61_000)
    older = {path: doubles.files.content(path) for path in doubles.files.paths()}
    busy(doubles, appends, seed + 1000)
    return doubles, appends, older


@pytest.mark.parametrize("seed", range(3))
def test_any_one_file_replaced_by_an_older_copy_is_noticed_and_nothing_wrong_is_served(seed: int) -> None:
    doubles, _, older = _twice_busy(seed)
    now = doubles.files.paths()
    replaced = {path: path for path in now if path in older and older[path] != doubles.files.content(path)}
    newest = max(path for path in now if path.startswith("checkpoint-"))
    replaced[newest] = max(path for path in older if path.startswith("checkpoint-"))
    for path, copy in replaced.items():
        doubles, appends, older = _twice_busy(seed)
        doubles.files.replace(path, older[copy])
        doubles.kill()
        for number in range(LOGS):
            expected = expected_values([append for append in appends[number::LOGS] if append.acknowledged])
            good, bad = one_by_one(doubles, doubles.log(number))
            assert good == {offset: expected[offset] for offset in good}, path
            assert doubles.findings or set(good) | set(bad) == set(range(len(expected))), f"{path}: lost without a word"
