"""The native loops and their twins: the same of sound bytes, and of hostile ones the same, or both refuse."""

from array import array
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keyed.model import KERNELS, SECRET, SIPHASHED

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.codec.batch import (
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    BatchInput,
    DecodedRecord,
    batches,
    encode,
    header,
    records,
)
from duramen.codec.compression import compress
from duramen.codec.crc import crc32c
from duramen.codec.shown_batches import ShownFields, ShownPage, plain_fields, shown_fields
from duramen.keyed.hashing import siphash
from duramen.keyed.kernel import (
    BACK,
    DEAD,
    FAR,
    FORWARD,
    KEEP,
    MOST_OFFSETS,
    AppliedBatches,
    Extracted,
    Kernel,
    most_keys,
)
from duramen.keyed.native import kernel, native_kernel
from duramen.keyed.plain import PLAIN

installed = pytest.mark.skipif(not is_installed(), reason="the native package is not installed")
kernels = pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.name)

FOREVER = (1 << 63) - 1

keys = st.none() | st.binary(max_size=2) | st.integers(30, 200).map(bytes)
headers = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
new_records = st.builds(BatchInput, st.integers(-1, 1 << 42), keys, st.none() | st.binary(max_size=3), headers)
lists = st.lists(new_records, min_size=1, max_size=12)


class Table:
    """Memory that a kernel works on."""

    def __init__(self, partitions: int, slots: int, room: int) -> None:
        self.partitions = [memoryview(bytearray(16 * slots)).cast("Q") for _ in range(partitions)]
        self.counts = memoryview(bytearray(8 * partitions)).cast("Q")
        self.distances = memoryview(bytearray(4 * room)).cast("I")

    def apply(
        self, one: Kernel, data: bytes, position: int, first: int, end: int, base: int = 0
    ) -> AppliedBatches | None:
        """What is done; None where it is refused."""
        try:
            return one.apply(data, position, first, end, self.partitions, self.counts, base, SECRET, self.distances)
        except BatchCorrupt:
            return None

    def content(self, records: int) -> object:
        return [list(words) for words in self.partitions], list(self.counts), list(self.distances[:records])


def tuples(found: AppliedBatches | None) -> object:
    return found and (*found[:4], [*map(tuple, found.runs)], [*map(tuple, found.far)])


def resealed(batch: bytearray) -> bytes:
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


def hostile(draw: st.DataObject) -> bytes:
    """Batches; mostly some are changed, in the header or the records, compressed then, and sealed again or not."""
    out, offset = b"", draw.draw(st.sampled_from((0, 0, 5, (1 << 62))))
    for _ in range(draw.draw(st.integers(1, 3))):
        new = draw.draw(lists)
        batch = bytearray(encode(new, base_offset=offset))
        offset += len(new)
        wrong = draw.draw(st.integers(0, 5))
        for _ in range(draw.draw(st.integers(1, 3)) if wrong else 0):
            at = draw.draw(st.integers(0, len(batch) - 1) | st.integers(HEADER_BYTES, len(batch) - 1))
            match wrong:
                case 1:
                    batch[at] = draw.draw(st.integers(0, 255))
                case 2:
                    batch[at : at + 1] = b"\xff" * draw.draw(st.integers(1, 11)) + b"\x01"
                case 3:
                    batch[57:61] = draw.draw(st.integers(-2, (1 << 31) - 1)).to_bytes(4, "big", signed=True)
                case 4:
                    batch[22] = draw.draw(st.integers(0, 255))
        codec = draw.draw(st.integers(0, 4)) if len(batch) > HEADER_BYTES else 0
        if codec:
            batch[HEADER_BYTES:] = compress(codec, bytes(batch[HEADER_BYTES:]))
            batch[22] = batch[22] & ~7 | codec
        out += resealed(batch) if draw.draw(st.integers(0, 5)) else bytes(batch)
    return out[: draw.draw(st.integers(0, len(out)))] if draw.draw(st.integers(0, 5)) == 0 else out


@installed
@given(st.data())
@settings(max_examples=examples(100), phases=(Phase.explicit, Phase.generate))
def test_hostile_batches_are_the_same_to_both(draw: st.DataObject) -> None:
    data = hostile(draw)
    shape = (draw.draw(st.sampled_from((1, 2, 64))), draw.draw(st.integers(4, 12)), draw.draw(st.integers(1, 40)))
    first = draw.draw(st.integers(0, 8) | st.just(1 << 62))
    end = draw.draw(st.integers(0, 30) | st.just(FOREVER))
    base = draw.draw(st.sampled_from((0, 0, 3, 1 << 62)))
    ours, theirs = Table(*shape), Table(*shape)
    position = 0
    for _ in range(4):
        one = ours.apply(native_kernel(), data, position, first, end, base)
        other = theirs.apply(SIPHASHED, data, position, first, end, base)
        assert tuples(one) == tuples(other)
        if one is None or (one.position, one.next_offset) == (position, first):
            break
        assert ours.content(one.records) == theirs.content(one.records)
        position, first = one.position, one.next_offset
    bits = draw.draw(st.binary(max_size=4))
    most = draw.draw(st.sampled_from((0, 70, 1 << 20)))
    made = extracted(native_kernel(), data, first, end, bits, base, most)
    assert made == extracted(PLAIN, data, first, end, bits, base, most)
    page = ShownPage(first, end, base, bits, data)
    fields = fields_of(plain_fields, page)
    assert fields_of(shown_fields, page) == fields
    if made and fields and made.position == len(data):
        assert fields_of(shown_fields, page._replace(batches=made.batches)) == fields


def gathered(one: Kernel, data: bytes, position: int, first: int, end: int, base: int, room: int) -> object:
    """What is gathered, and the rows; None where it is refused."""
    rows = memoryview(bytearray(16 * room)).cast("Q")
    try:
        done = one.gather(data, position, first, end, base, SECRET, rows)
    except BatchCorrupt:
        return None
    return tuples(done), list(rows[: 2 * done.records])


@installed
@given(st.data())
@settings(max_examples=examples(60), phases=(Phase.explicit, Phase.generate))
def test_rows_of_hostile_batches_are_the_same_to_both(draw: st.DataObject) -> None:
    data = hostile(draw)
    first, end = draw.draw(st.integers(0, 8) | st.just(1 << 62)), draw.draw(st.integers(0, 30) | st.just(FOREVER))
    at = (draw.draw(st.sampled_from((0, 0, 61, 70))), first, end)
    base, room = draw.draw(st.sampled_from((0, 0, 3, 1 << 62))), draw.draw(st.integers(1, 40))
    assert gathered(native_kernel(), data, *at, base, room) == gathered(SIPHASHED, data, *at, base, room)


@installed
@given(st.data())
@settings(max_examples=examples(100))
def test_rows_are_ordered_and_entered_alike(draw: st.DataObject) -> None:
    """Also into partitions that are nearly full, of keys whose hashes are nearly the same; and rows that are wild."""
    halves = st.integers(0, 5).map(lambda low: low << 32) | st.integers(0, (1 << 64) - 1)
    offsets = st.integers(0, 60) | st.integers(0, MOST_OFFSETS)
    some = draw.draw(st.lists(st.tuples(halves, st.integers(0, 3), offsets), max_size=60))
    slots, base = draw.draw(st.integers(4, 40)), draw.draw(st.sampled_from((0, 7, 1 << 62)))
    partitions = draw.draw(st.sampled_from((1, 2, 64, 3)))
    rows = array("Q", [word for low, high, offset in some for word in (low, high << 62 | offset)])
    wild = draw.draw(st.lists(st.integers(0, 70), max_size=3))
    assert entered(native_kernel(), rows, slots, base, partitions, wild) == entered(
        PLAIN, rows, slots, base, partitions, wild
    )


def entered(one: Kernel, rows: "array[int]", slots: int, base: int, partitions: int, wild: list[int]) -> object:
    """Everything that becomes of the rows, partition by partition; it ends where something is refused."""
    count = len(rows) // 2
    order, distances = memoryview(array("I", [0] * count)), memoryview(array("I", [0] * count))
    said: list[object] = []
    try:
        starts = list(one.order(memoryview(rows), order, partitions))
        said += [starts, order[: starts[-1]].tolist()]
        numbers = [order[low:high] for low, high in pairwise(starts)]
        for some in (*numbers, memoryview(array("I", wild))):
            words = memoryview(bytearray(16 * slots)).cast("Q")
            done = one.enter(words, 0, memoryview(rows), some, base, distances)
            said.append((done.rows, done.keys, [*map(tuple, done.far)], words.tolist(), distances.tolist()))
    except ValueError:
        said.append("refused")
    return said


def extracted(one: Kernel, data: bytes, first: int, end: int, bits: bytes, base: int, most: int) -> Extracted | None:
    try:
        return one.extract(data, 0, first, end, bits, base, most)
    except BatchCorrupt:
        return None


def fields_of(read: Callable[[ShownPage], ShownFields], page: ShownPage) -> ShownFields | None:
    try:
        return read(page)
    except BatchCorrupt:
        return None


small = st.integers(-3, 70)
wild = small | st.integers(-(1 << 63), FOREVER)


@given(st.data())
@settings(max_examples=examples(100), phases=(Phase.explicit, Phase.generate))
def test_bits_are_the_same_to_all(draw: st.DataObject) -> None:
    runs = draw.draw(st.lists(st.tuples(small | wild, st.integers(0, 9) | small), max_size=5))
    count = sum(count for _, count in runs) + draw.draw(st.sampled_from((0, 0, 0, 0, 1)))
    near = st.integers(0, 80) | st.sampled_from((0, 0, DEAD, DEAD, FAR, DEAD - 1))
    distances = draw.draw(st.lists(near, min_size=max(0, count), max_size=max(0, count)))
    offsets = sorted({first + at for first, number in runs if 0 <= first < 99 for at in range(max(0, number))})
    far = [field for offset in offsets for field in (offset, draw.draw(wild))]
    if draw.draw(st.integers(0, 3)) == 0:
        far = far[: draw.draw(st.integers(0, len(far)))]
    bits, base = draw.draw(st.binary(max_size=12)), draw.draw(st.integers(0, 40) | wild)
    step = draw.draw(st.sampled_from((FORWARD, BACK, KEEP)))
    outcomes = [
        outcome(one, bits, base, array("q", [field for run in runs for field in run]), distances, far, step)
        for one in KERNELS
    ]
    assert all(found == outcomes[0] for found in outcomes)


def outcome(
    one: Kernel, bits: bytes, base: int, runs: "array[int]", distances: list[int], far: list[int], step: int
) -> bytes | None:
    content = bytearray(bits)
    try:
        one.visible(
            content, base, memoryview(runs), memoryview(array("I", distances)), memoryview(array("q", far)), step
        )
    except ValueError:
        return None
    return bytes(content)


@kernels
def test_a_table_that_is_nearly_full(one: Kernel) -> None:
    chance = Random(7)
    for slots in (4, 5, 7, 64):
        table, model = Table(1, slots, 1), dict[bytes, int]()
        offset = 0
        while True:
            key = chance.randrange(3 * slots).to_bytes(2, "big")
            done = table.apply(one, bytes(encode([BatchInput(1, key, b"")], base_offset=offset)), 0, offset, FOREVER)
            assert done is not None
            if done.full >= 0:
                assert key not in model
                assert len(model) == most_keys(slots) == table.counts[0]
                break
            assert table.distances[0] == (offset - model[key] if key in model else 0)
            model[key] = offset
            offset += 1
        larger = memoryview(bytearray(b"\xff" * 32 * slots)).cast("Q")
        gone = bytes((0b1010_1010,)) * 200
        assert one.copy(table.partitions[0], larger, gone, 0, 0) == sum(at % 2 == 0 for at in model.values())
        kept = sorted((word & MOST_OFFSETS) - 1 for word in larger[1::2] if word & MOST_OFFSETS)
        assert kept == sorted(at for at in model.values() if at % 2 == 0)
        if most_keys(4) < len(model):
            with pytest.raises(ValueError, match="do not fit"):
                one.copy(table.partitions[0], memoryview(bytearray(64)).cast("Q"), b"", 0, 0)


@kernels
def test_a_distance_that_does_not_fit(one: Kernel) -> None:
    table = Table(1, 4, 2)
    offsets = [3, 3 + DEAD - 1, 2 + 2 * DEAD, 5 + 2 * DEAD]
    found = []
    for offset in offsets:
        done = table.apply(
            one, bytes(encode([BatchInput(1, b"k", b"")], base_offset=offset)), 0, offset, FOREVER, base=3
        )
        assert done is not None
        found.append((table.distances[0], [*map(tuple, done.far)]))
    assert found == [(0, []), (DEAD - 1, []), (FAR, [(offsets[2], offsets[1])]), (3, [])]


@kernels
def test_records_that_count_late_are_dead(one: Kernel) -> None:
    table = Table(1, 4, 4)
    new = [BatchInput(1, b"k", b""), BatchInput(1, b"other", b""), BatchInput(1, None, b"")]
    late = bytes(encode(new))
    done = table.apply(one, bytes(encode([BatchInput(1, b"k", b"")], base_offset=9)), 0, 9, FOREVER)
    assert done is not None
    done = table.apply(one, late, 0, 0, FOREVER)
    assert done is not None
    assert list(table.distances[:3]) == [DEAD, 0, 0]


@kernels
@pytest.mark.parametrize("codec", [0, 3])
def test_only_what_is_visible_is_taken(one: Kernel, codec: int) -> None:
    new = [BatchInput(7 + at, b"k%d" % at, Random(at).randbytes(90), [(b"h", b"1")]) for at in range(3)]
    parts = [
        bytes(encode(new, base_offset=at, attributes=CONTROL * (at == 9), codec=codec, producer_id=5))
        for at in (0, 3, 6, 9)
    ]
    ends = [sum(map(len, parts[:at])) for at in range(5)]
    data = b"".join(parts)

    def found(first: int, end: int, *offsets: int) -> tuple[int, int, list[DecodedRecord]]:
        bits = bytearray(2)
        for offset in offsets:
            bits[offset >> 3] |= 1 << (offset & 7)
        position, next_offset, made = one.extract(data, 0, first, end, bytes(bits), 0, 1 << 20)
        shown = [record for at, head in batches(made) for record in records(made[at : at + head.size])]
        return position, next_offset, shown

    everything = [record for at in range(3) for record in records(parts[at])]
    assert found(0, 99, 0, 5, 10) == (ends[4], 12, [everything[0], everything[5]])
    assert found(1, 6, 0, 3, 8) == (ends[2], 6, [everything[3]])
    made = one.extract(data, 0, 0, 99, b"\x12\xff", 0, 1)
    assert (made.position, made.next_offset, header(made.batches).producer_id) == (ends[1], 3, -1)
    if not codec:
        assert one.extract(parts[1], 0, 0, 99, b"\xff", 0, 1) == (len(parts[1]), 6, parts[1])
    assert one.extract(data[:-1], ends[1], 0, 99, b"\xff\xff", 0, 1 << 20)[0] == ends[3]


@installed
def test_buffers_that_are_not_what_they_have_to_be() -> None:
    import duramen_native

    one = native_kernel()
    batch = bytes(encode([BatchInput(1, b"k", b"")]))
    table = Table(2, 4, 1)

    def refused(action: Callable[[], object], *kinds: type[BaseException]) -> None:
        with pytest.raises(kinds):
            action()

    words, counts, room = table.partitions, table.counts, table.distances
    refused(lambda: one.apply(batch, 0, 0, 9, [words[0], words[0]], counts, 0, SECRET, room), BatchCorrupt)
    refused(lambda: one.apply(batch, 0, 0, 9, [], counts, 0, SECRET, room), BatchCorrupt)
    refused(lambda: one.apply(batch, 0, 0, 9, [words[0][:6], words[1]], counts, 0, SECRET, room), BatchCorrupt)
    refused(lambda: one.apply(batch, 0, 0, 9, words, counts, -1, SECRET, room), BatchCorrupt)
    refused(lambda: one.apply(batch, 0, 0, 9, words, counts, 0, b"short", room), BatchCorrupt)
    refused(lambda: one.apply(batch, 0, 0, 9, words, counts, 0, SECRET, room.toreadonly()), BatchCorrupt)
    refused(lambda: one.apply(batch, 0, 0, 9, words, counts, 0, SECRET, counts), BufferError)
    refused(lambda: one.apply(batch, 1 << 70, 0, 9, words, counts, 0, SECRET, room), OverflowError)
    refused(lambda: one.copy(words[0], words[0], b"", 0, 0), ValueError)
    refused(
        lambda: duramen_native.visible(bytearray(1), 0, counts.cast("B").cast("q")[:0], room, counts, 9), ValueError
    )
    full = Table(1, 4, 9)
    full.partitions[0].cast("B")[:] = b"\x5a" * 64  # a table that is full although its count says otherwise
    done = full.apply(one, batch, 0, 0, FOREVER)
    assert done is not None
    assert (done.full, done.records) == (0, 0)


def test_siphash_is_the_one_of_the_reference() -> None:
    hashed = siphash(bytes(range(16)))
    low, high = hashed(b"")
    assert low.to_bytes(8, "little").hex() == "a3817f04ba25a8e6"
    assert high.to_bytes(3, "little").hex() == "6df672"
    assert hashed(bytes(9)) != hashed(bytes(10))


def test_the_quickest_kernel_is_taken() -> None:
    assert kernel().name == ("native" if is_installed() else "numpy")
