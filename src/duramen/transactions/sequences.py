"""Commit sequences: one for each decided transaction, the same in all its markers. Pure.

A sequence is the time of the decision in microseconds, shifted by 12 bits, which hold the partition number in
`__transaction_state`: coordinators choose different ones without communication. The sequences of a coordinator
increase, whatever its clock does. So do those of a transactional id, because they are stored with it in that partition.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

__all__ = ["CommitSequences", "DecidedCommits", "partition_of"]

_PARTITION_BITS: Final = 12
_PARTITIONS: Final = 1 << _PARTITION_BITS


def partition_of(sequence: int) -> int:
    """The partition of `__transaction_state` that gave a sequence."""
    return sequence % _PARTITIONS


class DecidedCommits(NamedTuple):
    """The transactions of a partition of `__transaction_state` that were decided at a moment.

    Those up to `newest_us`, but for sequences that were given and not stored yet: `undecided`.
    """

    newest_us: int
    undecided: Collection[int]

    def has(self, sequence: int) -> bool:
        """Whether the transaction with that sequence was."""
        return sequence >> _PARTITION_BITS <= self.newest_us and sequence not in self.undecided


class CommitSequences:
    """Gives them, each above all that this node has seen."""

    def __init__(self) -> None:
        self._newest_us = -1

    @property
    def newest_us(self) -> int:
        """The time in the newest sequence that was given or seen."""
        return self._newest_us

    def saw(self, sequence: int) -> None:
        """There is a transaction with that one."""
        self._newest_us = max(self._newest_us, sequence >> _PARTITION_BITS)

    def following(self, now_ms: int, partition: int) -> int:
        """The sequence of a transaction that is decided now in that partition of `__transaction_state`."""
        self._newest_us = max(1000 * now_ms, self._newest_us + 1)
        return (self._newest_us << _PARTITION_BITS) | partition % _PARTITIONS
