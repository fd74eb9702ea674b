"""`latest`: the offset of the newest record of each key, in partitions that grow one by one. Pure.

A slot has 16 bytes: 88 bits of the key's hash, and the offset relative to the table's base. Two keys with the same 88
bits count as one: by chance in one of 10^11 tables of 50 million keys; only an attacker who knows the secret can cause
it.
"""

from typing import Final

from duramen.base.ports import Buffer
from duramen.keyed.kernel import FEWEST_SLOTS, NO_PARTITION, AppliedBatches, Kernel, most_keys

__all__ = ["PARTITIONS", "SLOT_BYTES", "Latest", "new_words", "resized"]

SLOT_BYTES: Final = 16
PARTITIONS: Final = 64
_FIRST_SLOTS: Final = 16
_SMALL_SLOTS: Final = 4096


class Latest:
    """A table of keys; `base` is the origin of its offsets, `secret` that of its hash."""

    def __init__(self, kernel: Kernel, base: int, secret: bytes, slots: int = _FIRST_SLOTS) -> None:
        self.base = base
        self.secret = secret
        self._kernel = kernel
        self._partitions = [new_words(2 * slots) for _ in range(PARTITIONS)]
        self._counts = new_words(len(self._partitions))

    def __len__(self) -> int:
        return sum(self._counts)

    @property
    def size_bytes(self) -> int:
        """Memory of the table."""
        return sum(map(len, self._partitions)) * 8

    def apply(self, data: Buffer, position: int, first: int, end: int, distances: memoryview) -> AppliedBatches:
        """Apply records as in `Apply`, as many as there are distances for; partitions grow as they fill."""
        records, runs, far = 0, list[tuple[int, int]](), list[tuple[int, int]]()
        while True:
            done = self._kernel.apply(
                data, position, first, end, self._partitions, self._counts, self.base, self.secret, distances[records:]
            )
            records += done.records
            runs += done.runs
            far += done.far
            if done.full == NO_PARTITION:
                return done._replace(records=records, runs=runs, far=far)
            position, first = done.position, done.next_offset
            self._grow(done.full)

    def forget(self, gone: Buffer, first: int) -> None:
        """Remove the keys whose newest offset has its bit in `gone`, which starts at the offset `first`."""
        for partition in range(len(self._partitions)):
            self._resize(partition, gone, first)

    def _grow(self, full: int) -> None:
        """Enlarge the full partition, and, if they are small, those that are almost full.

        They fill evenly, and each time one is full the rest of a batch is decoded again.
        """
        for partition, words in enumerate(self._partitions):
            slots = len(words) // 2
            soon = slots <= _SMALL_SLOTS and 4 * self._counts[partition] >= 3 * most_keys(slots)
            if soon or partition == full:
                self._resize(partition, b"", 0)

    def _resize(self, partition: int, gone: Buffer, first: int) -> None:
        old, count = self._partitions[partition], self._counts[partition]
        slots = len(old) // 2
        found = resized(self._kernel, old, count, slots if gone else slots + slots // 2, self.base, gone, first)
        self._counts[partition], self._partitions[partition] = found

    def parts(self) -> list[tuple[int, memoryview]]:
        """The count of keys and the words of each partition."""
        return list(zip(self._counts, self._partitions, strict=True))

    def load(self, partition: int, count: int, content: Buffer) -> None:
        """Load a partition from `parts`."""
        words = new_words(len(content) // 8)
        words.cast("B")[:] = content
        self._partitions[partition] = words
        self._counts[partition] = count


def resized(
    kernel: Kernel, words: memoryview, keys: int, slots: int, base: int, gone: Buffer = b"", first: int = 0
) -> tuple[int, memoryview]:
    """The number of remaining keys, and a partition with that many slots for them, or fewer if many are gone.

    Keys whose newest offset has its bit in `gone`, which starts at the offset `first`, are left out.
    """
    if not gone:
        slots = max(slots, len(words) // 2 + FEWEST_SLOTS)
    new = new_words(2 * slots)
    kept = kernel.copy(words, new, gone, first, base)
    if kept < keys and kept < most_keys(slots) // 3:
        old, new = new, new_words(2 * max(FEWEST_SLOTS, 2 * kept))
        kept = kernel.copy(old, new, b"", 0, base)
    return kept, new


def new_words(count: int) -> memoryview:
    """An array of words of 64 bits, all 0."""
    return memoryview(bytearray(8 * count)).cast("Q")
