"""The index of a segment against walking its batches one by one."""

from hypothesis import given
from hypothesis import strategies as st
from tests.storage.support import STREAM

from duramen.codec.crc import crc32c
from duramen.storage.segment.index import BLOCK_BYTES, IndexHeader, SegmentIndex, closed_entries, cover, read_header

SIZES = st.lists(
    st.one_of(st.integers(61, 400), st.integers(60_000, 70_000), st.integers(130_000, 200_000)),
    min_size=1, max_size=30,
)  # fmt: skip


class Batch:
    def __init__(self, start: int, end: int, offset: int, next_offset: int, timestamp: int) -> None:
        self.start, self.end, self.offset, self.next_offset, self.timestamp = start, end, offset, next_offset, timestamp


def build(sizes: list[int], timestamps: list[int]) -> tuple[SegmentIndex, list[Batch]]:
    index, batches = SegmentIndex(), []
    position = offset = 0
    largest = -1
    for number, size in enumerate(sizes):
        timestamp = timestamps[number % len(timestamps)]
        largest = max(largest, timestamp)
        batch = Batch(position, position + size, offset, offset + 1 + number % 3, timestamp)
        index.add(batch.start, batch.end, batch.next_offset, largest)
        batches.append(batch)
        position, offset = batch.end, batch.next_offset
    return index, batches


@given(SIZES, st.lists(st.integers(0, 50), min_size=1), st.data())
def test_seeking_lands_at_or_before_the_batch(sizes: list[int], timestamps: list[int], data: st.DataObject) -> None:
    index, batches = build(sizes, timestamps)
    starts = {batch.start for batch in batches} | {batches[-1].end}
    wanted = data.draw(st.sampled_from(batches))
    found = index.seek(wanted.offset)
    assert found in starts
    assert found is not None
    assert found <= wanted.start
    assert wanted.start - found <= BLOCK_BYTES + max(sizes)
    entry = index.last_start(wanted.start)
    assert entry is not None
    assert entry.position in starts
    assert entry.position <= wanted.start
    assert any(batch.start == entry.position and batch.offset == entry.offset for batch in batches) or (
        entry.position == batches[-1].end
    )


@given(SIZES, st.lists(st.integers(0, 50), min_size=1), st.integers(0, 60))
def test_seeking_a_time_never_skips_a_record(sizes: list[int], timestamps: list[int], timestamp: int) -> None:
    index, batches = build(sizes, timestamps)
    first = next((batch.start for batch in batches if batch.timestamp >= timestamp), batches[-1].end)
    assert index.seek_time(timestamp) <= first


@given(st.binary(max_size=5000), st.lists(st.integers(1, 3000), max_size=10), st.integers(0, 40))
def test_covering_in_pieces_gives_the_blocks_crcs(seed: bytes, cuts: list[int], repeat: int) -> None:
    content = (seed or b"x") * (1 + repeat * 5)
    pieces, at = [], 0
    for cut in [*cuts, len(content)]:
        pieces.append(content[at : at + cut])
        at += cut
    crcs: list[int] = []
    tail, position = 0, 0
    for piece in pieces:
        whole, tail = cover(tail, position, [piece])
        crcs += whole
        position += len(piece)
    blocks = [content[start : start + BLOCK_BYTES] for start in range(0, len(content), BLOCK_BYTES)]
    partial = blocks.pop() if blocks and len(blocks[-1]) < BLOCK_BYTES else b""
    assert crcs == [crc32c(block) for block in blocks]
    assert tail == crc32c(partial)


@given(SIZES, st.lists(st.integers(0, 50), min_size=1))
def test_the_file_says_what_memory_said(sizes: list[int], timestamps: list[int]) -> None:
    index, batches = build(sizes, timestamps)
    size = batches[-1].end
    index.cover(*cover(0, 0, [bytes(size)]))
    index.close(size, batches[-1].next_offset, max(batch.timestamp for batch in batches))
    entries = closed_entries(size)
    assert index.entries == entries
    header = IndexHeader(4, 1000, STREAM, 2).encode()
    data = header + index.encode(0, entries)
    decoded = SegmentIndex.decode(data, entries, entries - 1)
    assert decoded is not None
    assert decoded.encode(0, entries) == index.encode(0, entries)
    assert decoded.last() == index.last()
    assert read_header(data) == (4, 1000, STREAM, 2)


@given(SIZES, st.data())
def test_a_flipped_byte_in_the_file_is_noticed(sizes: list[int], data: st.DataObject) -> None:
    index, batches = build(sizes, [1])
    size = batches[-1].end
    index.cover(*cover(0, 0, [bytes(size)]))
    index.close(size, batches[-1].next_offset, 1)
    entries = closed_entries(size)
    content = bytearray(IndexHeader(4, 1000, STREAM, 2).encode() + index.encode(0, entries))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 0x20
    assert read_header(content) is None or SegmentIndex.decode(content, entries, entries - 1) is None


def test_an_index_that_is_cut_off_is_none() -> None:
    assert SegmentIndex.decode(b"", 1, 0) is None
    assert read_header(b"") is None
