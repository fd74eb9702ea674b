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
"""That of a record that is never visible: one of its key with a higher offset counted before it."""
FAR: Final = (1 << 32) - 1
"""That of a record whose distance does not fit; what it supersedes is in the list beside the distances."""

FORWARD: Final = 0
"""Records become visible, and what they supersede is not any more."""
BACK: Final = 1
"""What records supersede becomes visible again, and they are not any more. The newest records come first."""
KEEP: Final = 2
"""What records supersede becomes visible again; they stay what they are."""

OFFSET_BITS: Final = 40
MOST_OFFSETS: Final = (1 << OFFSET_BITS) - 1
"""How many offsets from its base on a table can tell apart."""
FEWEST_SLOTS: Final = 4
NO_PARTITION: Final = -1

_MOST_PARTITIONS: Final = 64


def most_keys(slots: int) -> int:
    """How many keys a partition of so many slots takes."""
    return slots - slots // 4


class AppliedBatches(NamedTuple):
    """What `apply` has done; `position` and `next_offset` (as `first`) are where it goes on.

    `full`: the partition that has no room for the next key. `records`: how many were applied, as many distances are
    written. `runs`: first offset and count of those that follow one another. `far`: offset and superseded offset of
    those whose distance is FAR.
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
        """Apply the records with offsets in `[first, end)` of the batches from `position` on; control batches not.

        Ends early where a partition or the distances are full. Compressed batches are decompressed. Raises BatchCorrupt
        where the batch that it begins with is damaged, and then nothing of that is entered; a damaged one behind others
        ends the call before it.
        """


class Copy(Protocol):
    """Copies a partition into another one."""

    def __call__(self, old: memoryview, new: memoryview, gone: Buffer, first: int, base: int) -> int:
        """Copy all keys, but for those whose newest offset has its bit in `gone`, which begins at the offset `first`.

        Returns how many keys there are. Raises ValueError where they do not fit.
        """


class Gather(Protocol):
    """Makes rows of records, which are entered into a table in files later."""

    def __call__(
        self, data: Buffer, position: int, first: int, end: int, base: int, secret: bytes, rows: memoryview
    ) -> AppliedBatches:
        """A row is what a slot becomes: two words, the second 0 where the record has no key.

        Takes the records that `Apply` takes, and ends as that does, where the rows are full; no partition ever is.
        """


class Order(Protocol):
    """Orders rows by partition."""

    def __call__(self, rows: memoryview, order: memoryview, partitions: int) -> Sequence[int]:
        """Write the numbers of the rows that have a key into `order`, by partition and then as they are.

        Returns where each partition begins in it, and the end.
        """


class Entered(NamedTuple):
    """What `enter` has done: of how many of the numbered rows, and how many keys the partition has now.

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
        """Enter the rows that `order` numbers, in this order; the distance of each is written where its number says.

        Ends early where the partition, which had `keys`, is full. Raises ValueError where there is no such row.
        """


class Visible(Protocol):
    """Changes bits by what records supersede."""

    def __call__(
        self,
        bits: bytearray | memoryview,
        base: int,
        runs: memoryview,
        distances: memoryview,
        far: memoryview,
        step: int,
    ) -> None:
        """Take `step` for each record; `runs` and `far`, which is sorted, are pairs of numbers, one behind the other.

        Bit `i % 8` of byte `i // 8` is the offset `base + i`; offsets that have no bit are passed over. Raises
        ValueError where runs, distances and far ones do not fit together.
        """


class Extracted(NamedTuple):
    """What `extract` has made: batches one behind the other.

    It goes on at `position` of the data, and at `next_offset`, before which nothing else is shown.
    """

    position: int
    next_offset: int
    batches: bytes


class Extract(Protocol):
    """Takes the records that a snapshot shows out of batches."""

    def __call__(
        self, data: Buffer, position: int, first: int, end: int, bits: Buffer, base: int, most_bytes: int
    ) -> Extracted:
        """Those with offsets in `[first, end)` that have their bit, of the batches from `position` on.

        Each batch that has some is made anew with only these records: uncompressed, without a producer, and with the
        offsets that it had. Where that is not shorter the batch stays as it is. Other batches are not decompressed, and
        other records only stepped over. It ends before a batch that has some once there are `most_bytes`. Control
        batches are left out. Raises BatchCorrupt as Apply does.
        """


class Kernel(NamedTuple):
    """One way to run the loops; `hash_id` says which hash its tables are made with."""

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
    """Raise ValueError where this cannot be a table."""
    count = len(partitions)
    check_count(count)
    if len(counts) != count:
        raise ValueError(f"a table has as many counts as partitions, not {len(counts)}")
    for one in partitions:
        check_partition(one)
    if base < 0:
        raise ValueError("a table counts from an offset")


def check_count(count: int) -> None:
    """Raise ValueError where a table cannot have so many partitions."""
    if not 0 < count <= _MOST_PARTITIONS or count & (count - 1):
        raise ValueError(f"a table has 1, 2, 4 … 64 partitions, not {count}")


def check_partition(words: memoryview) -> None:
    """Raise ValueError where this cannot be a partition of a table."""
    if len(words) % 2 or len(words) < 2 * FEWEST_SLOTS:
        raise ValueError("a partition has two words a slot and at least four slots")
