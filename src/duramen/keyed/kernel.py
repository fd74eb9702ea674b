"""The loops over records, as a port: the native package's functions or their Python twins. Pure.

All buffers belong to the caller: 64-bit words for tables, 32-bit words for distances, bytes for bits. During a call no
other code touches them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.ports import Buffer

__all__ = [
    "BACK",
    "DEAD",
    "FAR",
    "FEWEST_SLOTS",
    "FORWARD",
    "KEEP",
    "MOST_OFFSETS",
    "NOTHING",
    "NO_PARTITION",
    "OFFSET_BITS",
    "AppliedBatches",
    "Apply",
    "Copy",
    "Enter",
    "Entered",
    "Extract",
    "Extracted",
    "Gather",
    "Kernel",
    "Order",
    "Visible",
    "check_count",
    "check_partition",
    "check_table",
    "most_keys",
]

NOTHING: Final = 0
"""The distance of a record that supersedes nothing."""
DEAD: Final = (1 << 32) - 2
"""The distance of a record that is never visible: one of its key with a higher offset counted before it."""
FAR: Final = (1 << 32) - 1
"""The distance of a record whose distance does not fit; the superseded offset is in a separate list."""

FORWARD: Final = 0
"""Records become visible, and those that they supersede invisible."""
BACK: Final = 1
"""Superseded records become visible again, and those that supersede them invisible. The newest records come first."""
KEEP: Final = 2
"""Superseded records become visible again; those that supersede them are unchanged."""

OFFSET_BITS: Final = 40
MOST_OFFSETS: Final = (1 << OFFSET_BITS) - 1
"""The number of offsets from its base on that a table can distinguish."""
FEWEST_SLOTS: Final = 4
NO_PARTITION: Final = -1

_MOST_PARTITIONS: Final = 64


def most_keys(slots: int) -> int:
    """The capacity in keys of a partition with that many slots."""
    return slots - slots // 4


class AppliedBatches(NamedTuple):
    """The result of `apply`; `position` and `next_offset` (as `first`) are where it continues.

    `full`: the partition without room for the next key. `records`: the number of applied records, and of written
    distances. `runs`: first offset and count of consecutive records. `far`: offset and superseded offset of those whose
    distance is FAR.
    """

    position: int
    next_offset: int
    full: int
    records: int
    runs: Sequence[tuple[int, int]]
    far: Sequence[tuple[int, int]]


class Apply(Protocol):
    """Makes records the newest of their keys."""

    def __call__(
        self,
        data: Buffer,
        position: int,
        first: int,
        end: int,
        partitions: Sequence[memoryview],
        counts: memoryview,
        base: int,
        secret: bytes,
        distances: memoryview,
    ) -> AppliedBatches:
        """Apply the records with offsets in `[first, end)` of the batches from `position` on, without control batches.

        Ends early if a partition or the distances are full. Compressed batches are decompressed. Raises BatchCorrupt if
        the first batch is damaged; then nothing of it is entered; a later damaged batch ends the call before it.
        """


class Copy(Protocol):
    """Copies a partition into another one."""

    def __call__(self, old: memoryview, new: memoryview, gone: Buffer, first: int, base: int) -> int:
        """Copy all keys, except those whose newest offset has its bit in `gone`, which starts at the offset `first`.

        Returns the number of keys. Raises ValueError if they do not fit.
        """


class Gather(Protocol):
    """Makes rows of records, which are later entered into a table in files."""

    def __call__(
        self, data: Buffer, position: int, first: int, end: int, base: int, secret: bytes, rows: memoryview
    ) -> AppliedBatches:
        """A row is the future slot: two words, the second 0 if the record has no key.

        Accepts the records of `Apply`, and ends like it, when the rows are full; partitions never are.
        """


class Order(Protocol):
    """Orders rows by partition."""

    def __call__(self, rows: memoryview, order: memoryview, partitions: int) -> Sequence[int]:
        """Write the numbers of the rows with a key into `order`, by partition and then in their order.

        Returns the start of each partition in it, and the end.
        """


class Entered(NamedTuple):
    """The result of `enter`: the number of entered rows, and the partition's number of keys.

    `far`: offset and superseded offset of those whose distance is FAR.
    """

    rows: int
    keys: int
    far: Sequence[tuple[int, int]]


class Enter(Protocol):
    """Makes rows the newest of their keys in one partition."""

    def __call__(
        self, words: memoryview, keys: int, rows: memoryview, order: memoryview, base: int, distances: memoryview
    ) -> Entered:
        """Enter the rows that `order` numbers, in this order; the distance of each is written at its number.

        Ends early if the partition, which had `keys`, is full. Raises ValueError if a row does not exist.
        """


class Visible(Protocol):
    """Changes bits according to superseded records."""

    def __call__(
        self,
        bits: bytearray | memoryview,
        base: int,
        runs: memoryview,
        distances: memoryview,
        far: memoryview,
        step: int,
    ) -> None:
        """Run `step` for each record; `runs` and `far`, which is sorted, are flat lists of pairs.

        Bit `i % 8` of byte `i // 8` is the offset `base + i`; offsets without a bit are skipped. Raises ValueError if
        runs, distances and far ones do not fit together.
        """


class Extracted(NamedTuple):
    """The result of `extract`: adjacent batches.

    It continues at `position` of the data, and at `next_offset`, before which nothing else is shown.
    """

    position: int
    next_offset: int
    batches: bytes


class Extract(Protocol):
    """Extracts the shown records of a snapshot from batches."""

    def __call__(
        self, data: Buffer, position: int, first: int, end: int, bits: Buffer, base: int, most_bytes: int
    ) -> Extracted:
        """The records with offsets in `[first, end)` whose bit is set, of the batches from `position` on.

        Each batch with some is rebuilt with only these records: uncompressed, without a producer, and with its original
        offsets. If that is not shorter the batch stays unchanged. Other batches are not decompressed, and other records
        only skipped. It ends before a batch with some once there are `most_bytes`. Control batches are left out. Raises
        BatchCorrupt like Apply.
        """


class Kernel(NamedTuple):
    """One implementation of the loops; `hash_id` is the hash of its tables."""

    name: str
    hash_id: int
    apply: Apply
    copy: Copy
    gather: Gather
    order: Order
    enter: Enter
    visible: Visible
    extract: Extract


def check_table(partitions: Sequence[memoryview], counts: memoryview, base: int) -> None:
    """Raise ValueError unless this can be a table."""
    count = len(partitions)
    check_count(count)
    if len(counts) != count:
        raise ValueError(f"a table has as many counts as partitions, not {len(counts)}")
    for one in partitions:
        check_partition(one)
    if base < 0:
        raise ValueError("a table counts from an offset")


def check_count(count: int) -> None:
    """Raise ValueError unless a table can have that many partitions."""
    if not 0 < count <= _MOST_PARTITIONS or count & (count - 1):
        raise ValueError(f"a table has 1, 2, 4 … 64 partitions, not {count}")


def check_partition(words: memoryview) -> None:
    """Raise ValueError unless this can be a partition of a table."""
    if len(words) % 2 or len(words) < 2 * FEWEST_SLOTS:
        raise ValueError("a partition has two words a slot and at least four slots")
