"""A transaction of a simulated run, and the records that a read_committed reader may see. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

from duramen.codec.batch import CONTROL, TRANSACTIONAL, batches, records
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["SimulatedTransaction", "decided"]

_ABORTS = b"\0\0\0\0"


class SimulatedTransaction:
    """`fate` is its known state; while it is ending, or left over from a crash, a reader is the first to know."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.fate: Literal["open", "ending", "committed", "aborted"] = "open"

    def seen(self, where: str, *, committed: bool) -> None:
        """A reader of `where` saw one of its batches as committed, or left it out. Raises BrokenPromise."""
        one = f"{where}: a batch of transaction {self.number}, which is {self.fate},"
        if committed and self.fate in ("open", "aborted"):
            raise BrokenPromise(f"{one} is read as committed")
        if not committed and self.fate == "committed":
            raise BrokenPromise(f"{one} is left out")
        self.fate = "committed" if committed else "aborted"


def decided(data: bytes, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[bytes, bool]]:
    """Each transactional batch and whether a read_committed consumer accepts it (Kafka's `CompletedFetch`).

    `aborted` are producer id and first offset of aborted transactions among the batches.
    """
    coming = sorted(aborted, key=lambda one: one[1])
    out: set[int] = set()
    for position, head in batches(data):
        while coming and coming[0][1] < head.next_offset:
            out.add(coming.pop(0)[0])
        batch = data[position : position + head.size]
        if head.attributes & CONTROL:
            if any(record.key == _ABORTS for record in records(batch)):
                out.discard(head.producer_id)
        elif head.attributes & TRANSACTIONAL:
            yield batch, head.producer_id not in out
