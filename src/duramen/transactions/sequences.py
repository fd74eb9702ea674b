"""Commit sequences: one for each transaction whose end is decided, the same in all its markers. Pure.

A sequence is the time of the decision in microseconds, shifted by 12 bits, with the number of the partition of
`__transaction_state` in them: coordinators need not ask each other to give different ones. Those of a coordinator
rise, whatever its clock does, and so do those of a transactional id, for they lie with it in that partition.
"""

from typing import Final

__all__ = ["CommitSequences"]

_PARTITION_BITS: Final = 12
_PARTITIONS: Final = 1 << _PARTITION_BITS


class CommitSequences:
    """Gives them, each above all that this node has seen."""

    def __init__(self) -> None:
        self._newest_us = -1

    def saw(self, sequence: int) -> None:
        """There is a transaction with that one."""
        self._newest_us = max(self._newest_us, sequence >> _PARTITION_BITS)

    def following(self, now_ms: int, partition: int) -> int:
        """The sequence of a transaction that is decided now in that partition of `__transaction_state`."""
        self._newest_us = max(1000 * now_ms, self._newest_us + 1)
        return (self._newest_us << _PARTITION_BITS) | partition % _PARTITIONS
