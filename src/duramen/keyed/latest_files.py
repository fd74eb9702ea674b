"""`latest` in files: collects committed records and enters them in rounds, one partition at a time. Pure.

Memory holds one partition at a time, and 24 bytes per collected record. A partition is written beside the old one; the
view's checkpoint names the new ones together with the end position of the round. A failure before that leaves the old
ones in force: the round continues with the partition at which it failed.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import Buffer
from duramen.codec.crc import crc32c
from duramen.keyed.kernel import AppliedBatches, Kernel
from duramen.keyed.latest import PARTITIONS, Latest, new_words, resized

__all__ = ["FiledTable", "Gone", "MemoryParts", "PartStore", "RowBlock", "TablePart"]

_ROW_BYTES: Final = 16
_RECORD_BYTES: Final = _ROW_BYTES + 8
"""With the number of its row and its distance."""


class TablePart(NamedTuple):
    """A partition in a file: the file's number, its numbers of keys and bytes, and its checksum."""

    number: int
    keys: int
    size: int
    crc: int


class PartStore(Protocol):
    """The store of a table's partitions."""

    def write_part(self, number: int, crc: int, words: memoryview) -> None:
        """Write a partition; numbers increase. `crc` is the CRC-32C of its words."""

    def settle_part(self) -> None:
        """Make the last write durable. Raises OSError: then it must be written again."""

    def read_part(self, number: int, size: int) -> memoryview:
        """The words of a partition, owned by the caller. Raises CheckpointInvalid if the size differs."""


class MemoryParts:
    """Partitions in memory."""

    def __init__(self) -> None:
        self.there: dict[int, bytes] = {}

    def write_part(self, number: int, crc: int, words: memoryview) -> None:
        """Keep a partition."""
        del crc
        self.there[number] = bytes(words.cast("B"))

    def settle_part(self) -> None:
        """Nothing: it is in memory."""

    def read_part(self, number: int, size: int) -> memoryview:
        """A copy of its words."""
        del size
        return memoryview(bytearray(self.there[number])).cast("Q")


class Gone(NamedTuple):
    """Bits of records that were dropped, from the offset `first` on, a multiple of 8."""

    bits: Buffer
    first: int


class RowBlock:
    """Gathered records, in counting order, and their distances once they are entered."""

    def __init__(self, records: int) -> None:
        self.rows = new_words(2 * records)
        self.records = 0
        self.pieces: list[tuple[Sequence[tuple[int, int]], int]] = []
        self.far: dict[int, list[tuple[int, int]]] = {}
        self.order = self.distances = memoryview(array("I"))
        self.starts: Sequence[int] = ()

    def prepare(self, kernel: Kernel) -> None:
        """The block is complete: order the records by partition."""
        if not self.starts:
            self.order, self.distances = (memoryview(array("I", bytes(4 * self.records))) for _ in range(2))
            self.starts = kernel.order(self.rows[: 2 * self.records], self.order, PARTITIONS)

    def of(self, partition: int) -> memoryview:
        """The numbers of the rows of a partition."""
        return self.order[self.starts[partition] : self.starts[partition + 1]]


class _Round(NamedTuple):
    """The records to enter, those to remove before, and the written partitions."""

    blocks: list[RowBlock]
    gone: list[Gone]
    parts: list[TablePart]


class FiledTable:
    """A table of keys; it starts as one in memory, which its first round writes, or with the result of a round."""

    def __init__(
        self, kernel: Kernel, table: Latest, store: PartStore, block_records: int, parts: Sequence[TablePart] = ()
    ) -> None:
        """`parts` are those of a checkpoint; without any, those of the table are used."""
        self._kernel = kernel
        self._base = table.base
        self._secret = table.secret
        self._store = store
        self._block_records = block_records
        self._source: list[tuple[int, memoryview]] = [] if parts else table.parts()
        self._parts = list(parts)
        self._round: _Round | None = None
        self._unsettled = -1  # the partition written last, while it is being synced
        self._next = 1 + max((part.number for part in parts), default=0)
        self._blocks: list[RowBlock] = []
        self._gone: list[Gone] = []

    def __len__(self) -> int:
        """The number of keys at the end of the last round."""
        return sum(keys for keys, _ in self._source) + sum(part.keys for part in self._parts)

    @property
    def parts(self) -> list[TablePart]:
        """The files for a checkpoint; none before the first round has ended."""
        return list(self._parts)

    @property
    def in_round(self) -> bool:
        """Whether a round is in progress, or due independently of gathered records."""
        return self._round is not None or bool(self._source)

    @property
    def records(self) -> int:
        """The number of records gathered for the next round."""
        return sum(block.records for block in self._blocks)

    @property
    def gathered_bytes(self) -> int:
        """The memory of gathered records once they are ordered."""
        return len(self._blocks) * _RECORD_BYTES * self._block_records

    @property
    def file_bytes(self) -> int:
        """Bytes of the files."""
        return sum(part.size for part in self._parts)

    @property
    def memory_bytes(self) -> int:
        """Gathered records, the largest partition, which a round loads, and partitions not in files yet."""
        blocks, gone = [*self._blocks], [*self._gone]
        if self._round is not None:
            blocks += self._round.blocks
            gone += self._round.gone
        largest = max((part.size for part in self._parts), default=0)
        source = sum(len(words) * 8 for _, words in self._source)
        gathered = len(blocks) * _RECORD_BYTES * self._block_records + sum(len(one.bits) for one in gone)
        return gathered + 2 * largest + source

    def gather(self, data: memoryview, position: int, first: int, end: int, at: int) -> AppliedBatches:
        """Gather records for the next round, as in `Gather`; they count at the offset `at`, or at their own."""
        if not self._blocks or self._blocks[-1].records == self._block_records:
            self._blocks.append(RowBlock(self._block_records))
        block = self._blocks[-1]
        room = block.rows[2 * block.records :]
        done = self._kernel.gather(data, position, first, end, self._base, self._secret, room)
        if done.records:
            block.records += done.records
            block.pieces.append((done.runs, at))
        return done

    def forget(self, gone: Gone) -> None:
        """Remove the keys whose newest record was dropped, in the next round."""
        self._gone.append(gone)

    def step(self) -> bool:
        """Enter the gathered records into the next partition; False after the last.

        Keys forgotten after the first step are removed in the next round. Raises OSError, CheckpointInvalid.
        """
        if self._round is None:
            self._round = _Round(self._blocks, self._gone, [])
            self._blocks, self._gone = [], []
        blocks, gone, parts = self._round
        partition = len(parts)
        if partition == PARTITIONS:
            self._settle(parts)
            return len(parts) < PARTITIONS
        for block in blocks:
            block.prepare(self._kernel)
        touched = self._source or gone or any(len(block.of(partition)) for block in blocks)
        parts.append(self._written(self._round, partition) if touched else self._parts[partition])
        return True

    def _settle(self, parts: list[TablePart]) -> None:
        unsettled, self._unsettled = self._unsettled, -1
        if unsettled < 0:
            return
        try:
            self._store.settle_part()
        except OSError:
            del parts[unsettled:]
            raise

    def _written(self, round_: _Round, partition: int) -> TablePart:
        blocks, gone, parts = round_
        keys, words = self._read(partition)
        for one in gone:
            keys, words = resized(self._kernel, words, keys, len(words) // 2, self._base, one.bits, one.first)
        for block in blocks:
            far = block.far[partition] = list[tuple[int, int]]()
            numbers = block.of(partition)
            while len(numbers):
                rows, keys, found = self._kernel.enter(words, keys, block.rows, numbers, self._base, block.distances)
                far += found
                numbers = numbers[rows:]
                if len(numbers):
                    slots = len(words) // 2
                    keys, words = resized(self._kernel, words, keys, slots + slots // 4, self._base)
        self._settle(parts)
        number, crc = self._next, crc32c(words.cast("B"))
        self._next += 1
        self._store.write_part(number, crc, words)
        self._unsettled = partition
        return TablePart(number, keys, 8 * len(words), crc)

    def _read(self, partition: int) -> tuple[int, memoryview]:
        """Its keys and words, for a round to change."""
        if self._source:
            keys, words = self._source[partition]
            return keys, memoryview(bytearray(words.cast("B"))).cast("Q")
        part = self._parts[partition]
        words = self._store.read_part(part.number, part.size)
        if 8 * len(words) != part.size or crc32c(words.cast("B")) != part.crc:
            raise CheckpointInvalid(f"the file {part.number} of a view's table does not match its checksum")
        return part.keys, words

    def end_round(self) -> tuple[list[RowBlock], list[Gone]]:
        """The written partitions become the table.

        Returns the entered records, with their distances, and the removed ones.
        """
        if self._round is None or len(self._round.parts) < PARTITIONS:
            raise AssertionError("the round has not come to its end")
        blocks, gone, self._parts = self._round
        self._source, self._round = [], None
        return blocks, gone

    def in_memory(self) -> list[tuple[int, memoryview]]:
        """The count of keys and the words of each partition, read from the files. Raises CheckpointInvalid, OSError."""
        return [self._read(partition) for partition in range(PARTITIONS)]
