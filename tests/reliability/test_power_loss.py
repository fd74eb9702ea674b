"""Power loss: what was not synced may go, torn or in part; what was acknowledged may not."""

import random

import pytest
from tests.reliability.support import LOGS, busy, keeps_the_promise, one_by_one

from duramen.base.ports import Lane
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import LogConfig

LANES: tuple[Lane, ...] = ("sync", "disk", "read")

_BATCHES = 3


def test_power_loss_drops_every_unsynced_byte() -> None:
    doubles = StoreOnDoubles()
    appends: list[AppendOutcome] = []
    busy(doubles, appends, 1)
    appends += [doubles.append(doubles.log(number % LOGS), b"unsynced %d" % number) for number in range(9)]
    doubles.advance_without_syncing(1000)  # they are written, and copied into segments, but no sync has run
    assert not any(append.decided for append in appends[-9:])
    doubles.crash()
    assert doubles.findings == []
    for number in range(LOGS):
        acknowledged = [append for append in appends[number::LOGS] if append.acknowledged]
        assert doubles.values(doubles.log(number)) == expected_values(acknowledged)


def test_a_random_subset_of_unsynced_pages_survives() -> None:
    for seed in range(120):
        doubles = StoreOnDoubles()
        appends: list[AppendOutcome] = []
        chance = random.Random(seed)
        busy(doubles, appends, seed, batches=chance.randrange(1, 45))
        for _ in range(chance.randrange(30)):
            log = doubles.log(len(appends) % LOGS)
            appends.append(doubles.append(log, chance.randbytes(chance.randrange(9000))))
            if chance.random() < 0.5:
                doubles.worker.run_soon()
            if chance.random() < 0.2:
                doubles.advance_without_syncing(1000)
        doubles.crash(random.Random(seed))
        assert doubles.findings == [], "what was never synced is not damage"
        keeps_the_promise(doubles, appends)


def test_no_checkpoint_stands_beyond_what_is_synced_of_the_write_ahead_log() -> None:
    """Else a loss of power after it leaves files of the WAL missing that the checkpoint wants to go on from."""
    doubles = StoreOnDoubles()
    appends: list[AppendOutcome] = []
    checkpoints = doubles.metrics.counter("duramen_checkpoints_total")
    for number in range(60):
        appends.append(doubles.append(doubles.log(number % LOGS), bytes([number]) * 3000))
        doubles.worker.run_soon()
    doubles.advance_without_syncing(61_000)
    assert checkpoints.value == 0
    doubles.settle()
    assert checkpoints.value > 0
    doubles.crash()
    keeps_the_promise(doubles, appends)


def test_durability_os_what_lay_behind_a_torn_segment_never_comes_back() -> None:
    config = LogConfig(durability="os", segment_bytes=1000)
    for seed in range(60):
        doubles = StoreOnDoubles()
        content: list[bytes] = []
        for life in range(5):
            for number in range(12):
                doubles.append(doubles.log(0, config), b"%d:%d" % (life, number) + b"." * 200)
                content.append(b"%d:%d" % (life, number) + b"." * 200)
                if number % 4 == life:
                    doubles.settle()
            doubles.crash(random.Random(seed * 10 + life))
            found = doubles.values(doubles.log(0, config))
            assert found == content[: len(found)], "an older life's records in the place of newer ones"
            content = found
            rows = [offset for _, _, offset in doubles.log(0).takeovers.rows()]
            assert rows == sorted(rows)
            assert not rows or rows[-1] <= len(found)


def test_durability_os_what_was_cut_is_cut_on_disk_too() -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(durability="os")
    doubles.append(doubles.log(0, config), b"first life")
    doubles.settle()
    doubles.crash()
    doubles.append(doubles.log(0, config), b"second life")
    doubles.worker.run_soon()
    doubles.files.open(doubles.log(0).active.path + ".log").sync()
    for path in ("logs", doubles.log(0).directory):
        doubles.files.sync_directory(path)
    doubles.crash()
    assert doubles.values(doubles.log(0, config)) == [], "the WAL has lost who wrote it"
    doubles.append(doubles.log(0, config), b"third life")
    doubles.worker.run_soon()
    doubles.worker.step("sync")
    doubles.crash()
    assert doubles.values(doubles.log(0, config)) == []


def _three_synced(later: bool) -> tuple[StoreOnDoubles, int, int, int]:
    """Two batches, three more, each in a sync of its own, and perhaps one later; the place of the three in the WAL."""
    doubles = StoreOnDoubles()
    places = []
    for number in range(5 + later):
        assert doubles.append(doubles.log(), b"batch %d" % number).decided is False
        doubles.settle()
        places.append(doubles.store.wal_end & 0xFFFFFFFF)
    return doubles, places[1], places[3], places[4]


def _tear(doubles: StoreOnDoubles, cut: int, end: int) -> None:
    file = doubles.files.open("wal/000000.wal")
    rest = bytes(file.read(cut, end - cut))
    file.write([bytes(byte ^ 0x5A for byte in rest)], cut)


def test_the_same_tear_in_synced_batches_is_damage_where_a_later_frame_vouches_for_them() -> None:
    _, start, _, end = _three_synced(later=True)
    size = (end - start) // _BATCHES
    for cut in range(start, end):
        doubles, *_ = _three_synced(later=True)
        _tear(doubles, cut, end)
        doubles.kill()
        first = 2 + (cut - start) // size
        assert any("wal/000000.wal" in finding and "damage" in finding for finding in doubles.findings)
        good, bad = one_by_one(doubles, doubles.log())
        assert good == {number: b"batch %d" % number for number in (*range(first), 5)}
        assert list(bad) == list(range(first, 5))


def test_a_synced_torn_tail_with_nothing_later_cannot_be_told_from_an_unsynced_one() -> None:
    """The limit: what vouches for a batch is written after it. The docs say so; nothing but that tail may go."""
    _, start, before_last, end = _three_synced(later=False)
    size = (end - start) // _BATCHES
    for cut in range(start, end):
        doubles, *_ = _three_synced(later=False)
        _tear(doubles, cut, end)
        doubles.kill()
        first = 2 + (cut - start) // size
        good, bad = one_by_one(doubles, doubles.log())
        assert good == {number: b"batch %d" % number for number in range(first)}
        assert list(bad) == list(range(first, len(good) + len(bad)))
        # The last batch vouches for those before it where it is whole; where it is not, its vouching goes with it.
        assert cut <= before_last or not doubles.findings


def test_a_tear_in_synced_batches_is_damage_where_the_checkpoint_vouches_for_them() -> None:
    def written() -> tuple[StoreOnDoubles, str, int]:
        doubles = StoreOnDoubles()
        log = doubles.log()
        for number in range(5):
            doubles.append(log, b"batch %d" % number)
        doubles.settle()
        doubles.advance(61_000)  # a checkpoint
        return doubles, log.active.path + ".log", log.active.size

    _, _, end = written()
    size = end // 5
    for cut in range(2 * size, end):
        doubles, path, _ = written()
        doubles.files.open(path).truncate(cut)
        doubles.kill()
        assert any(path in finding and "the rest is damaged" in finding for finding in doubles.findings)
        assert doubles.metrics.counter("duramen_damaged_ranges_total").value == 0, "a start counts its findings"
        assert doubles.store.quarantine.ranges == 1
        good, bad = one_by_one(doubles, doubles.log())
        assert good == {number: b"batch %d" % number for number in range(cut // size)}
        assert list(bad) == list(range(cut // size, 5))
        assert all(path in message for message in bad.values())
        appended = doubles.append(doubles.log(), b"next")
        doubles.settle()
        assert appended.base_offset == 5, "an offset that was acknowledged is never given again"


@pytest.mark.parametrize("kept", [True, False], ids=["some pages kept", "none kept"])
def test_power_is_lost_again_and_again(kept: bool) -> None:
    doubles = StoreOnDoubles()
    chance = random.Random(7)
    content: list[list[bytes]] = [[] for _ in range(LOGS)]
    for _ in range(40):
        appends = [
            (number, doubles.append(doubles.log(number), chance.randbytes(chance.randrange(3000))))
            for number in [chance.randrange(LOGS) for _ in range(12)]
            if chance.random() < 0.9
        ]
        for _ in range(chance.randrange(6)):
            doubles.worker.run_soon()
            any(doubles.worker.step(lane) for lane in chance.sample(LANES, 3))
        acknowledged = [(number, append) for number, append in appends if append.acknowledged]
        doubles.crash(random.Random(chance.random()) if kept else None)
        for number in range(LOGS):
            found = doubles.values(doubles.log(number))
            least = content[number] + [value for at, append in acknowledged if at == number for value in append.values]
            assert found[: len(least)] == least
            content[number] = found
