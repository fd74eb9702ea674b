"""State that a node derives from a partition's log: the applied position, and the records that it still needs."""

from collections import deque
from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError, NotLeader
from duramen.storage.store import AppendDone

__all__ = ["LocalState"]


class LocalState:
    """State that this node derives from a partition's log, which may be truncated below it.

    Its owner sets the offsets and calls `moved`. The partition's replica decides what follows, and sets the lowest
    older checkpoint of all in-sync replicas: -1 if it does not lead or one is unknown.
    """

    __slots__ = (
        "_leaderships", "_unapplied", "accepted_bytes", "accepted_records", "applied_offset", "floor_offset",
        "lowest_checkpoint", "moved", "problem", "refusal", "replicated",
    )  # fmt: skip

    def __init__(self) -> None:
        self.applied_offset = 0
        """The state covers the log below this offset."""
        self.floor_offset = 0
        """The log is kept from this offset on: the older checkpoint covers everything below."""
        self.problem: DuramenError | None = None
        """Why the leader takes no batches, if the state is lost."""
        self.moved: Callable[[], None] = _nothing
        self.replicated: Callable[[], None] = _nothing
        """Called when the partition gets a replica: from then on the high watermark is known."""
        self.lowest_checkpoint: Callable[[], int] = lambda: self.floor_offset
        self.refusal: Callable[[int], DuramenError | None] = lambda _: None
        """Why a leader may not append a producer's batch of that many records, if it may not."""
        self.accepted_records = 0
        self.accepted_bytes = 0
        """Of batches and commands that are accepted and not applied yet."""
        self._unapplied: deque[tuple[int, Callable[[DuramenError | None], None]]] = deque()
        self._leaderships = 0  # the number of ended ones

    def accept(self, records: int, size: int) -> Callable[[], None]:
        """Count accepted records and their bytes until the result is called, once: they are applied or discarded."""
        self.accepted_records += records
        self.accepted_bytes += size

        def over() -> None:
            self.accepted_records -= records
            self.accepted_bytes -= size

        return over

    def once_applied(self, records: int, size: int, done: AppendDone | None) -> AppendDone:
        """A callback for a batch of that many records and bytes, which calls `done` once the state has them.

        So writers are no faster than the state is applied.
        """
        over, leaderships = self.accept(records, size), self._leaderships

        def ended(base_offset: int, error: DuramenError | None) -> None:
            over()
            if done is not None:
                done(base_offset, error)

        def stored(base_offset: int, error: DuramenError | None) -> None:
            if error is None and leaderships != self._leaderships:
                # Its offset may be truncated: batches of a later leadership must not wait for it.
                error = NotLeader("this node is no longer the leader that received the records")
            if error is not None or base_offset + records <= self.applied_offset:
                ended(base_offset, error)
            else:
                self._unapplied.append((base_offset + records, partial(ended, base_offset)))

        return stored

    def end_leadership(self, error: DuramenError) -> None:
        """Tell all whose batches this leader accepted, also those that are stored later."""
        self._leaderships += 1
        self.acknowledge(error)

    def acknowledge(self, error: DuramenError | None = None) -> None:
        """Tell those whose batches are applied, and with an error all others too."""
        while self._unapplied and (error is not None or self._unapplied[0][0] <= self.applied_offset):
            self._unapplied.popleft()[1](error)


def _nothing() -> None:
    """No callback."""
