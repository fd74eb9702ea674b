"""Which bytes of a segment are damaged: whatever one byte was changed, exactly the batch that it lies in."""

import errno
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.storage.segments import Whole, segment_of

from duramen.base.ports import Buffer
from duramen.codec.batch import HEADER_BYTES, BatchInput, encode
from duramen.codec.crc import crc32c
from duramen.sim.machine.disk import MemoryFile
from duramen.storage.segment.bit_flips import flipped_bytes
from duramen.storage.segment.checks import ExpectedSegment, SegmentCheck, block_bounds, examine_block
from duramen.storage.segment.damage import Damage, DamageCause, merged
from duramen.storage.segment.index import BLOCK_BYTES, SegmentIndex

STEP = 10_000


def check(
    whole: Whole, data: bytes | bytearray | None = None, *, indexed: bool = True, gaps: bool = False, step: int = STEP
) -> list[Damage]:
    """What is found in the bytes of `data`, or in the sound ones."""
    expected = ExpectedSegment(len(whole.data), whole.base_offset, whole.end_offset, whole.end_offset if gaps else 0)
    looking = SegmentCheck(whole.file(data), expected, whole.known if indexed else None)
    while looking.step(step):
        pass
    return looking.damage


def ranges(found: list[Damage]) -> list[tuple[int, int, int, int]]:
    return [(one.start, one.end, one.first_offset, one.last_offset) for one in found]


def of_batch(whole: Whole, number: int) -> tuple[int, int, int, int]:
    """The whole of a batch, and its offsets up to where the next begins."""
    first = whole.offsets[number - 1] + len_of(whole, number - 1) if number else whole.base_offset
    return whole.starts[number], whole.starts[number + 1], first, whole.offsets[number + 1] - 1


def len_of(whole: Whole, number: int) -> int:
    return int.from_bytes(whole.data[whole.starts[number] + 57 : whole.starts[number] + 61], "big")


CHANCE = random.Random(3)
SIZES = st.lists(st.one_of(st.integers(0, 200), st.integers(3000, 90_000)), min_size=1, max_size=30)


def random_segment(sizes: list[int], base_offset: int, gaps: list[int]) -> Whole:
    values = [[CHANCE.randbytes(size)] * (1 + size % 3) for size in sizes]
    return segment_of(values, base_offset, gaps)


@given(SIZES, st.integers(0, 1 << 40), st.booleans(), st.integers(1, 200_000))
@settings(deadline=None, max_examples=examples(50))
def test_a_sound_segment_has_no_damage(sizes: list[int], base_offset: int, indexed: bool, step: int) -> None:
    whole = random_segment(sizes, base_offset, [])
    assert check(whole, indexed=indexed, step=step) == []


@given(SIZES, st.lists(st.integers(0, 3), min_size=30, max_size=30), st.booleans())
@settings(deadline=None, max_examples=examples(50))
def test_records_that_compaction_took_are_not_missing(sizes: list[int], gaps: list[int], indexed: bool) -> None:
    whole = random_segment(sizes, 7, gaps)
    assert check(whole, indexed=indexed, gaps=True) == []
    if any(gaps[: len(sizes)]):
        assert {one.cause for one in check(whole, indexed=indexed)} == {DamageCause.MISSING}


@given(SIZES, st.lists(st.integers(0, 3), min_size=30, max_size=30), st.data())
@settings(deadline=None, max_examples=examples(150))
def test_any_one_byte_changed_costs_its_batch_and_no_other(
    sizes: list[int], gaps: list[int], data: st.DataObject
) -> None:
    whole = random_segment(sizes, 1000, gaps)
    number = data.draw(st.integers(0, len(sizes) - 1))
    size = whole.starts[number + 1] - whole.starts[number]
    place = data.draw(st.one_of(st.integers(0, HEADER_BYTES - 1), st.integers(0, size - 1)))
    damaged = whole.flipped(whole.starts[number] + place, data.draw(st.integers(1, 255)))
    (found,) = check(whole, damaged, gaps=True)
    start, end, first_offset, last_offset = of_batch(whole, number)
    assert (found.start, found.end, found.first_offset) == (start, end, first_offset)
    assert whole.offsets[number] + len_of(whole, number) - 1 <= found.last_offset <= last_offset


@given(SIZES, st.data())
@settings(deadline=None, max_examples=examples(100))
def test_without_an_index_too_unless_it_is_the_epoch(sizes: list[int], data: st.DataObject) -> None:
    whole = random_segment(sizes, 1000, [])
    number = data.draw(st.integers(0, len(sizes) - 1))
    size = whole.starts[number + 1] - whole.starts[number]
    place = data.draw(st.one_of(st.integers(0, HEADER_BYTES - 1), st.integers(0, size - 1)))
    damaged = whole.flipped(whole.starts[number] + place, data.draw(st.integers(1, 255)))
    if 12 <= place < 16 and number in (0, len(sizes) - 1):
        return  # an epoch that nothing contradicts
    assert ranges(check(whole, damaged, indexed=False)) == [of_batch(whole, number)]


def small(count: int, epochs: Sequence[int] = ()) -> Whole:
    return segment_of([[bytes([number % 256]) * 1000] for number in range(count)], epochs=epochs)


@pytest.mark.parametrize(
    ("place", "cause"),
    [(3, DamageCause.OFFSET), (7, DamageCause.OFFSET), (10, DamageCause.HEADER), (14, DamageCause.BLOCK_CRC),
     (16, DamageCause.HEADER), (18, DamageCause.BATCH_CRC), (30, DamageCause.BATCH_CRC), (500, DamageCause.BATCH_CRC)],
)  # fmt: skip
def test_the_cause_is_named(place: int, cause: DamageCause) -> None:
    whole = small(200)
    (found,) = check(whole, whole.flipped(whole.starts[100] + place))
    assert found == Damage(*of_batch(whole, 100), cause)
    assert str(found) == f"bytes {found.start} to {found.end} (offsets 100 to 100) are damaged: {cause.words}"


def test_several_damaged_batches_are_several_ranges() -> None:
    whole = small(300)
    damaged = bytearray(whole.data)
    for number, place in ((0, 500), (100, 16), (101, 900), (103, 500), (250, 7), (299, 500)):
        damaged[whole.starts[number] + place] ^= 4
    for indexed in (True, False):
        lost = {
            offset
            for one in check(whole, damaged, indexed=indexed)
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        assert lost == {0, 100, 101, 103, 250, 299}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("at", [0, 30, 1061, 70_000, 150_000, -1])
def test_a_file_cut_short_is_damaged_from_there_on(indexed: bool, at: int) -> None:
    whole = small(200)
    size = at if at >= 0 else len(whole.data) - 1
    found = check(whole, whole.data[:size], indexed=indexed)
    number = whole.batch_at(size)
    assert ranges(found) == [(whole.starts[number], len(whole.data), number, 199)]
    assert found[0].cause is DamageCause.CUT_SHORT


@pytest.mark.parametrize("indexed", [True, False])
def test_an_older_copy_is_cut_short_or_does_not_match(indexed: bool) -> None:
    whole, other = small(200), small(200, epochs=[2] * 200)
    assert [one.cause for one in check(whole, whole.data[: whole.starts[150]], indexed=indexed)] == [
        DamageCause.CUT_SHORT
    ]
    if indexed:
        found = check(whole, other.data)
        assert (found[0].first_offset, found[-1].last_offset) == (0, 199)


@pytest.mark.parametrize("indexed", [True, False])
def test_zeros_in_the_middle(indexed: bool) -> None:
    whole = small(300)
    damaged = bytearray(whole.data)
    damaged[100_000:104_096] = bytes(4096)
    first, last = whole.batch_at(100_000), whole.batch_at(104_095)
    found = check(whole, damaged, indexed=indexed)
    assert (found[0].first_offset, found[-1].last_offset) == (first, last)
    assert (found[0].start, found[-1].end) == (whole.starts[first], whole.starts[last + 1])


@pytest.mark.parametrize("indexed", [True, False])
def test_a_batch_inside_of_a_record_is_not_taken_for_one_of_the_log(indexed: bool) -> None:
    inside = bytes(encode([BatchInput(5, None, b"inside")], base_offset=3, leader_epoch=1))
    values = [[b"x" * 200], [b"y" * 200], [b"begins " + inside * 5 + b" ends"], [b"z" * 200], [b"last"]]
    whole = segment_of(values)
    for place in (7, 10, 16, 80):
        found = check(whole, whole.flipped(whole.starts[2] + place), indexed=indexed)
        assert ranges(found) == [of_batch(whole, 2)]


def test_epochs_that_are_not_those_of_the_takeovers_are_found_without_an_index() -> None:
    whole = small(20, epochs=[1] * 10 + [4] * 10)
    expected = ExpectedSegment(len(whole.data), 0, 20, epoch_at=lambda offset: 1 if offset < 10 else 4)
    damaged = whole.flipped(whole.starts[9] + 15, 3)
    looking = SegmentCheck(whole.file(damaged), expected)
    while looking.step(STEP):
        pass
    assert [(one.first_offset, one.last_offset, one.cause) for one in looking.damage] == [(9, 9, DamageCause.EPOCH)]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("older", [[4], [1, 4], [2, 2], [4, 1], [6]])
def test_what_another_leader_ordered_does_not_say_which_offsets_are_lost(indexed: bool, older: list[int]) -> None:
    whole = segment_of([[b"x" * 500] * count for count in (4, 1, 2, 2, 1)], epochs=[8, 9, 9, 9, 9])
    before = segment_of([[b"y"] * count for count in older], base_offset=4, epochs=[8] * len(older))
    start, end = whole.starts[1], whole.starts[3]
    assert len(before.data) < end - start
    damaged = bytearray(whole.data)
    damaged[start:end] = before.data + bytes(end - start - len(before.data))
    expected = ExpectedSegment(len(whole.data), 0, whole.end_offset, epoch_at=lambda offset: 8 if offset < 4 else 9)
    looking = SegmentCheck(whole.file(damaged), expected, whole.known if indexed else None)
    while looking.step(STEP):
        pass
    assert looking.damage == [Damage(start, end, 4, 6, DamageCause.EPOCH)]


def test_how_far_damage_goes_behind_a_block_is_known_with_the_block() -> None:
    whole = segment_of([[b"x" * size] * 2 for size in (100, 50_000, 50_000, 100)], epochs=[8, 9, 9, 9])
    before = segment_of([[b"y" * 10_000] * 7], base_offset=2, epochs=[8]).data
    start, end = whole.starts[1], whole.starts[3]
    assert start < BLOCK_BYTES < start + len(before) < end
    damaged = bytearray(whole.data)
    damaged[start:end] = before + bytes(end - start - len(before))
    expected = ExpectedSegment(len(whole.data), 0, whole.end_offset, epoch_at=lambda offset: 8 if offset < 2 else 9)
    found = examine_block(whole.file(damaged), block_bounds(whole.known, 0, expected), expected)
    assert [(one.first_offset, one.last_offset) for one in found] == [(2, 3)]


def test_ranges_known_to_be_lost_are_not_missing() -> None:
    whole = segment_of([[b"a"], [b"b"], [b"c"]], gaps=[0, 5, 0])
    expected = ExpectedSegment(len(whole.data), 0, 8, lost=[(1, 5)])
    looking = SegmentCheck(whole.file(), expected)
    while looking.step(STEP):
        pass
    assert looking.damage == []


def test_blocks_that_the_disk_does_not_give_are_damage_or_an_error() -> None:
    whole = small(300)
    file = whole.file()
    broken = range(BLOCK_BYTES, 2 * BLOCK_BYTES)

    class Broken(MemoryFile):
        """Gives an error where a read touches the second block."""

        def __init__(self) -> None:
            self.__dict__.update(file.__dict__)

        def read(self, position: int, size: int) -> Buffer:
            if position < broken.stop and position + size > broken.start:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(position, size)

    expected = ExpectedSegment(len(whole.data), 0, 300)
    with pytest.raises(OSError, match="Input/output"):
        SegmentCheck(Broken(), expected, whole.known).step(10**6)
    looking = SegmentCheck(Broken(), expected, whole.known, steady=True)
    while looking.step(STEP):
        pass
    first, last = whole.batch_at(broken.start), whole.batch_at(broken.stop - 1)
    assert (looking.damage[0].first_offset, looking.damage[-1].last_offset) == (first, last)
    assert {one.cause for one in looking.damage} == {DamageCause.UNREADABLE}


@given(SIZES)
@settings(deadline=None, max_examples=examples(30))
def test_the_index_that_is_made_is_the_one_that_was_lost(sizes: list[int]) -> None:
    whole = random_segment(sizes, 50, [])
    looking = SegmentCheck(whole.file(), ExpectedSegment(len(whole.data), 50, whole.end_offset))
    while looking.step(STEP):
        pass
    entries = whole.known.entries
    assert looking.index.entries == entries
    assert looking.index.encode(0, entries) == whole.known.encode(0, entries)


@given(st.binary(min_size=1, max_size=3000), st.data())
@settings(deadline=None)
def test_the_byte_that_was_changed_is_among_those_found(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[at] ^= data.draw(st.integers(1, 255))
    assert at in flipped_bytes(crc32c(content) ^ crc32c(changed), len(content))


def test_ranges_that_overlap_are_one() -> None:
    one, two = Damage(0, 10, 0, 1, DamageCause.OFFSET), Damage(5, 20, 1, 3, DamageCause.HEADER)
    assert merged([two, one, one]) == [Damage(0, 20, 0, 3, DamageCause.OFFSET)]
    assert merged([Damage(0, 10, 0, -1, DamageCause.HEADER), Damage(10, 20, 0, 3, DamageCause.CUT_SHORT)]) == [
        Damage(0, 20, 0, 3, DamageCause.CUT_SHORT)
    ]
    apart = [Damage(0, 10, 0, 0, DamageCause.HEADER), Damage(10, 20, 1, 1, DamageCause.HEADER)]
    assert merged(apart) == apart


def test_an_index_of_nothing_makes_an_empty_one() -> None:
    looking = SegmentCheck(segment_of([[b"x"]]).file(), ExpectedSegment(0, 0, 0))
    assert not looking.step(STEP)
    assert looking.index.encode(0, 1) == SegmentIndex().encode(0, 1)


def test_an_offset_changed_to_one_that_compaction_took_costs_not_the_batch_before() -> None:
    whole = segment_of([[b""]] * 4, 1000, [0, 0, 2, 0])
    for step in (1, STEP):
        for mask in (1, 7):
            (found,) = check(whole, whole.flipped(whole.starts[3] + 7, mask), gaps=True, step=step)
            assert found == Damage(*of_batch(whole, 3), DamageCause.OFFSET)


@pytest.mark.parametrize(("number", "mask"), [(0, 2), (1, 1), (1, 2), (1, 128)])
def test_of_the_first_two_epochs_the_wrong_one_is_the_damage(number: int, mask: int) -> None:
    whole = small(3, epochs=[129, 129, 129])
    (found,) = check(whole, whole.flipped(whole.starts[number] + 15, mask), indexed=False)
    assert found == Damage(*of_batch(whole, number), DamageCause.EPOCH)
