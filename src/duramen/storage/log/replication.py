"""Replication state of a log: its high watermark, and the epoch in which this node may append to it. Pure."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, NotLeader
from duramen.storage.log.producers import ProducerRow, ProducerTable

__all__ = ["Replicated"]


def _nobody(_epoch: int, _first_offset: int, _end_offset: int) -> None:
    """Ignore the append."""


class Replicated:
    """The state of a log that other nodes determine. A log without one is committed as far as it is synced.

    `high_watermark` decreases only if the log is truncated or restarted. `leader_epoch` is the epoch in which this node
    orders batches, None if it does not: waiting batches are refused then. `on_append` is called for each batch when it
    is in the log: with the epoch, its first offset and its end. `leads_since_ms` is when this node started to order
    batches; None if responses do not depend on it.
    """

    __slots__ = (
        "_before", "_found_offset", "_remembered_offset", "high_watermark", "leader_epoch", "leads_since_ms",
        "on_append",
    )  # fmt: skip

    def __init__(
        self, high_watermark: int, found_offset: int, on_append: Callable[[int, int, int], None] | None = None
    ) -> None:
        """`found_offset` is the end of the log at the start of the node."""
        self._found_offset = found_offset
        self._before: list[tuple[int, int, ProducerRow | None]] = []  # offset, and the producer's entry before it
        self._remembered_offset = found_offset  # earlier appends cannot be undone
        self.high_watermark = high_watermark
        self.leader_epoch: int | None = None
        self.leads_since_ms: int | None = None
        self.on_append = on_append or _nobody

    @property
    def settled(self) -> bool:
        """Whether the records found at the start are all committed, or deleted by a restart of the log.

        The ends of their transactions are not remembered: until then nothing is stable.
        """
        return self.high_watermark >= self._found_offset

    def begins_anew(self, start_offset: int) -> None:
        """The log is about to restart there, empty: until then, none of the remaining records are stable.

        Its transactions are forgotten before its records are deleted.
        """
        self._found_offset = start_offset

    def cut(self, end_offset: int) -> None:
        """The log ends there now; the remaining batches have been searched for transactions."""
        self.high_watermark = min(self.high_watermark, end_offset)
        self._found_offset = min(self._found_offset, self.high_watermark)
        self._before.clear()
        self._remembered_offset = end_offset

    # -- uncommitted records ------------------------------------------------------------------------

    def remember(self, base_offset: int, producer_id: int, producer: ProducerRow | None) -> None:
        """A batch is appended at `base_offset`: `producer` is the producer's entry before it.

        Committed batches are never undone.
        """
        before, high_watermark = self._before, self.high_watermark
        count = 0
        while count < len(before) and before[count][0] < high_watermark:
            count += 1
        if count:
            self._remembered_offset = before[count - 1][0] + 1
            del before[:count]
        before.append((base_offset, producer_id, producer))

    def remembers(self, end_offset: int) -> bool:
        """Whether the state of the producers at that end of the log is known."""
        return end_offset >= max(self._remembered_offset, self.high_watermark)

    def take_back(self, end_offset: int, producers: ProducerTable) -> None:
        """Restore the producers to the state at `end_offset`, for which `remembers` must be true."""
        before = self._before
        while before and before[-1][0] >= end_offset:
            _, producer_id, producer = before.pop()
            producers.put_back(producer_id, producer)

    def refusal(self, epoch: int) -> DuramenError | None:
        """The reason why this node may not order a batch of that epoch."""
        if epoch == self.leader_epoch:
            return None
        now = "none" if self.leader_epoch is None else self.leader_epoch
        return NotLeader(
            f"the batch belongs to leader epoch {epoch}, and this node now leads the partition in epoch {now}"
        )
