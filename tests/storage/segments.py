"""Segments as bytes, with their indexes, to be damaged."""

from collections.abc import Sequence
from typing import NamedTuple

from duramen.codec.batch import BatchInput, encode
from duramen.sim.machine.disk import MemoryFile, MemoryFileSystem
from duramen.storage.segment.index import SegmentIndex, cover


class Whole(NamedTuple):
    """A segment's batches: where each begins, its first offset, and the end of both."""

    data: bytearray
    starts: list[int]
    offsets: list[int]
    known: SegmentIndex
    base_offset: int

    @property
    def end_offset(self) -> int:
        return self.offsets[-1]

    def batch_at(self, position: int) -> int:
        """The number of the batch that a byte belongs to."""
        return max(at for at, start in enumerate(self.starts[:-1]) if start <= position)

    def file(self, data: bytes | bytearray | None = None) -> MemoryFile:
        """The bytes, or others, in a file."""
        files = MemoryFileSystem()
        file = files.open("segment", create=True)
        file.write([self.data if data is None else data], 0)
        return file

    def flipped(self, position: int, flip: int = 1) -> bytearray:
        """A copy with bits of a byte flipped."""
        data = bytearray(self.data)
        data[position] ^= flip
        return data


def segment_of(
    values: Sequence[Sequence[bytes]], base_offset: int = 0, gaps: Sequence[int] = (), epochs: Sequence[int] = ()
) -> Whole:
    """A closed segment with one batch for each of `values`; before each, as many records missing as `gaps` says."""
    data, starts, offsets, index = bytearray(), [], [], SegmentIndex()
    offset = base_offset
    for number, records in enumerate(values):
        offset += gaps[number] if number < len(gaps) else 0
        epoch = epochs[number] if number < len(epochs) else 1
        batch = encode([BatchInput(5, None, value) for value in records], base_offset=offset, leader_epoch=epoch)
        starts.append(len(data))
        offsets.append(offset)
        offset += len(records)
        index.add(len(data), len(data) + len(batch), offset - base_offset, 5)
        index.cover(*cover(index.tail_crc, len(data), [batch]))
        data += batch
    index.close(len(data), offset - base_offset, 5)
    return Whole(data, [*starts, len(data)], [*offsets, offset], index, base_offset)
