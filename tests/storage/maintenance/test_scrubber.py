"""The scrubber: finds every kind of damage before a reader does, at its rate, and disturbs nobody."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.storage.segment.test_quarantine import batch_of, log_of, readable

from duramen.base.errors import LogDamaged
from duramen.codec.batch import HEADER_BYTES
from duramen.sim.machine.disk import MemoryFile
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.segment.damage import DamageCause
from duramen.storage.segment.index import ENTRY_BYTES, INDEX_HEADER_BYTES

FAST = 1 << 40
HOUR_MS = 3_600_000


def checkpointed(sizes: list[int], segment_bytes: int = 100_000) -> tuple[StoreOnDoubles, Log]:
    """A log whose segments are all synced."""
    doubles, _ = log_of(sizes, segment_bytes)
    doubles.restart()
    return doubles, doubles.log()


def scrub(doubles: StoreOnDoubles) -> list[str]:
    """One round; returns what was reported."""
    reported: list[str] = []
    doubles.store.quarantine.report_to(reported.append)
    doubles.store.scrubber.start(FAST, HOUR_MS)
    rounds = doubles.metrics.counter("duramen_scrub_rounds_total")
    before = rounds.value
    doubles.advance(60_000)
    for _ in range(100_000):
        if rounds.value > before:
            doubles.store.scrubber.stop()
            return reported
        doubles.advance(1)
    raise AssertionError("the round does not end")


def test_sound_segments_are_read_and_nothing_is_said() -> None:
    doubles, log = checkpointed([1000] * 300)
    assert scrub(doubles) == []
    scrubbed = doubles.metrics.counter("duramen_scrubbed_bytes_total").value
    closed = sum(segment.size for segment in log.segments[:-1])
    assert closed <= scrubbed <= closed + log.active.size
    assert all(segment.index is None for segment in log.segments[:-1]), "indexes are not kept in memory for it"


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("place", "cause"),
    [
        (500, DamageCause.BATCH_CRC),
        (7, DamageCause.OFFSET),
        (14, DamageCause.BLOCK_CRC),
        (10, DamageCause.HEADER),
        (16, DamageCause.HEADER),
    ],
)
def test_each_kind_of_byte_is_found_before_it_is_read(place: int, cause: DamageCause, cold: bool) -> None:
    doubles, log = checkpointed([1000] * 300)
    segment = log.segments[1]
    doubles.files.cold = cold
    victim = segment.base_offset + 50
    doubles.files.corrupt(segment.path + ".log", 50 * 1070 + place)
    (reported,) = scrub(doubles)
    assert reported.startswith(f"{segment.path}.log: bytes 53500 to 54570 (offsets {victim} to {victim}) are damaged")
    assert [one.cause for one in segment.damage] in ([cause], [DamageCause.BLOCK_CRC])
    assert doubles.metrics.counter("duramen_damaged_ranges_total").value == 1
    with pytest.raises(LogDamaged, match=f"offsets {victim} to {victim}"):
        batch_of(doubles, log, victim)
    found, lost = readable(doubles, log)
    assert lost == [victim]
    assert len(found) == 299
    assert scrub(doubles) == [], "what is known is not said again"


def test_a_segment_cut_short_or_missing_is_found() -> None:
    doubles, log = checkpointed([1000] * 300)
    doubles.files.open(log.segments[0].path + ".log").truncate(50_000)
    doubles.files.unlink(log.segments[1].path + ".log")
    assert len(scrub(doubles)) == 2
    causes = [[one.cause for one in segment.damage] for segment in log.segments[:2]]
    assert causes == [[DamageCause.CUT_SHORT], [DamageCause.MISSING_FILE]]
    first = log.segments[2].base_offset
    assert readable(doubles, log)[1] == list(range(50_000 // 1070, first))


def test_an_older_copy_of_a_segment_is_found() -> None:
    doubles, log = log_of([1000] * 50, 200_000)
    path = log.active.path + ".log"
    file = doubles.files.open(path)
    older = bytes(file.read(0, file.size()))
    for _ in range(300):
        doubles.append(log, b"x" * 1000)
    doubles.settle()
    doubles.restart()
    log = doubles.log()
    file = doubles.files.open(path)
    file.truncate(0)
    file.write([older], 0)
    scrub(doubles)
    (damage,) = log.segments[0].damage
    assert (damage.first_offset, damage.last_offset) == (50, log.segments[1].base_offset - 1)


@pytest.mark.parametrize("how", ["flipped", "missing", "header", "another's"])
def test_a_damaged_index_is_made_again_and_no_data_harmed(how: str) -> None:
    doubles, log = checkpointed([1000] * 300)
    first, second = log.segments[0].path + ".index", log.segments[1].path + ".index"
    file = doubles.files.open(first)
    sound = bytes(file.read(0, file.size()))
    if how == "missing":
        doubles.files.unlink(first)
    elif how == "another's":
        other = doubles.files.open(second)
        file.write([bytes(other.read(0, other.size()))], 0)
    else:
        doubles.files.corrupt(first, INDEX_HEADER_BYTES + ENTRY_BYTES if how == "flipped" else 10)
    (reported,) = scrub(doubles)
    assert "it is rebuilt" in reported
    file = doubles.files.open(first)
    assert bytes(file.read(0, file.size())) == sound
    assert readable(doubles, log)[1] == []
    assert scrub(doubles) == []


@given(
    st.lists(st.one_of(st.integers(0, 300), st.integers(20_000, 90_000)), min_size=1, max_size=15),
    st.sampled_from([3000, 200_000]),
    st.data(),
)
@settings(deadline=None, max_examples=examples(30))
def test_any_one_byte_of_a_closed_segment(sizes: list[int], segment_bytes: int, data: st.DataObject) -> None:
    doubles, log = log_of(sizes, segment_bytes)
    sound, _ = readable(doubles, log)
    log.roll()
    doubles.restart()
    log = doubles.log()
    victim = data.draw(st.integers(0, len(sizes) - 1))
    segment = max(
        (one for one in log.segments if one.base_offset <= victim and one.size), key=lambda one: one.base_offset
    )
    start = sum(len(sound[offset]) for offset in range(segment.base_offset, victim))
    place = data.draw(st.one_of(st.integers(0, HEADER_BYTES - 1), st.integers(0, len(sound[victim]) - 1)))
    doubles.files.corrupt(segment.path + ".log", start + place, data.draw(st.integers(1, 255)))
    scrub(doubles)
    assert [(one.start, one.end) for one in segment.damage] == [(start, start + len(sound[victim]))]
    found, lost = readable(doubles, log)
    assert lost == [victim]
    del sound[victim]
    assert found == sound


def test_what_is_appended_to_is_read_as_far_as_it_is_synced() -> None:
    doubles, log = checkpointed([1000] * 300, 1 << 30)
    for _ in range(100):
        doubles.append(log, b"x" * 1000)
    doubles.files.corrupt(log.active.path + ".log", 100 * 1070 + 500)
    scrub(doubles)
    assert [one.first_offset for one in log.active.damage] == [100]
    for _ in range(100):
        doubles.append(log, b"x" * 1000)
    doubles.settle()
    doubles.advance(120_000)
    scrub(doubles)
    assert readable(doubles, log)[1] == [100]


def test_it_reads_no_faster_than_it_may() -> None:
    doubles, _ = checkpointed([50_000] * 60, 1_000_000)
    rate = 1 << 20
    doubles.store.scrubber.start(rate, HOUR_MS)
    doubles.advance(60_000)
    scrubbed = doubles.metrics.counter("duramen_scrubbed_bytes_total")
    begun = scrubbed.value
    for second in range(1, 3):
        for _ in range(100):
            doubles.advance(10)
        assert scrubbed.value - begun <= second * rate
        assert scrubbed.value - begun >= second * rate * 0.8
    doubles.store.scrubber.stop()
    stopped = scrubbed.value
    doubles.advance(10_000)
    assert scrubbed.value == stopped


def test_rate_zero_reads_nothing() -> None:
    doubles, _ = checkpointed([1000] * 300)
    doubles.store.scrubber.start(0, 1)
    for _ in range(100):
        doubles.advance(60_000)
    assert doubles.metrics.counter("duramen_scrubbed_bytes_total").value == 0


def test_a_round_begins_once_in_the_interval() -> None:
    doubles, _ = checkpointed([1000] * 100)
    doubles.store.scrubber.start(FAST, HOUR_MS)
    rounds = doubles.metrics.counter("duramen_scrub_rounds_total")
    for _ in range(6 * 60):
        doubles.advance(10_000)
    assert rounds.value == 1
    for _ in range(6 * 60):
        doubles.advance(10_000)
    assert rounds.value == 2


def test_segments_that_go_while_they_are_looked_at_are_let_go() -> None:
    doubles, log = checkpointed([50_000] * 60, 1_000_000)
    doubles.store.scrubber.start(1 << 20, HOUR_MS)
    doubles.advance(60_000)
    doubles.advance(300)
    doubles.store.delete(log)
    for _ in range(100):
        doubles.advance(1000)
    assert doubles.metrics.counter("duramen_scrub_rounds_total").value == 1
    assert doubles.metrics.counter("duramen_damaged_ranges_total").value == 0


def test_blocks_that_the_disk_does_not_give_are_said_and_not_given_up() -> None:
    doubles, log = checkpointed([1000] * 300)
    path = log.segments[0].path + ".log"

    def fail(call: str, where: str, size: int) -> int:
        if call == "read" and where == path:
            raise OSError(5, "Input/output error")
        return size

    doubles.files.cold = True
    doubles.files.interfere = fail
    reported = scrub(doubles)
    doubles.files.interfere = None
    assert reported
    assert all(DamageCause.UNREADABLE.words in one for one in reported)
    assert readable(doubles, log)[1] == []


@pytest.mark.parametrize("cold", [False, True])
def test_what_was_not_in_memory_before_is_not_kept_there(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    doubles, _ = checkpointed([1000] * 300)
    doubles.files.cold = cold
    forgotten: list[int] = []
    monkeypatch.setattr(MemoryFile, "forget", lambda _, __, size: forgotten.append(size))
    scrub(doubles)
    scrubbed = doubles.metrics.counter("duramen_scrubbed_bytes_total").value
    assert sum(forgotten) == (scrubbed if cold else 0)


@pytest.mark.parametrize("scrubbed", [False, True])
@pytest.mark.parametrize("victim", [0, 2, 4])
def test_a_wrong_epoch_is_found_where_the_index_has_to_be_made_anew(victim: int, scrubbed: bool) -> None:
    segment_bytes = 5 * 1070
    doubles, log = checkpointed([1000] * 3, segment_bytes)
    log.config = LogConfig(segment_bytes=segment_bytes)
    for _ in range(4):  # in the next epoch, to the end of the segment and beyond
        doubles.append(log, b"v" * 1000)
    doubles.restart()
    segment = doubles.log().segments[0]
    assert segment.closed
    doubles.files.unlink(segment.path + ".index")
    doubles.files.corrupt(segment.path + ".log", victim * 1070 + 14)  # the third byte of the epoch
    if scrubbed:
        scrub(doubles)
        assert [(one.first_offset, one.last_offset) for one in segment.damage] == [(victim, victim)]
    assert readable(doubles, doubles.log())[1] == [victim]
    doubles.kill()
    assert readable(doubles, doubles.log())[1] == [victim]
