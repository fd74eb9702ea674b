"""Replication state of a log: its committed offset, and who may append to it. Pure."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, NotLeader
from duramen.storage.log.producers import ProducerRow, ProducerTable

__all__ = ["Replicated"]


def _nobody(_epoch: int, _first_offset: int, _end_offset: int) -> None:
    """Nobody has to be told."""


class Replicated:
    """The part of a log that others decide. A log without one is committed as far as it is synced.

    `high_watermark` never falls but where the log is cut or begun anew. `leader_epoch` is the one in which this node
    orders batches, None where it does not: what still waits then to be ordered is refused. `on_append` is told of each
    batch that is in the log from then on: the epoch, its first offset and the one behind it. `leads_since_ms` is when
    this node began to order batches; None where it does not count for what it answers.
    """

    __slots__ = (
        "_before", "_found_offset", "_remembered_offset", "high_watermark", "leader_epoch", "leads_since_ms",
        "on_append",
    )  # fmt: skip

    def __init__(
        self, high_watermark: int, found_offset: int, on_append: Callable[[int, int, int], None] | None = None
    ) -> None:
        """`found_offset` is the end that a start has found."""
        self._found_offset = found_offset
        self._before: list[tuple[int, int, ProducerRow | None]] = []  # offset of a batch, its producer as it was
        self._remembered_offset = found_offset  # what was appended before it cannot be taken back
        self.high_watermark = high_watermark
        self.leader_epoch: int | None = None
        self.leads_since_ms: int | None = None
        self.on_append = on_append or _nobody

    @property
    def settled(self) -> bool:
        """Whether all that was there at the start is committed, or let go where the log begins anew.

        Which transactions ended in it, and where, nobody remembers: until then nothing is stable.
        """
        return self.high_watermark >= self._found_offset

    def begins_anew(self, start_offset: int) -> None:
        """The log is about to begin there, with nothing: until it does, none of what is left of it is stable.

        Its transactions are forgotten before their records go.
        """
        self._found_offset = start_offset

    def cut(self, end_offset: int) -> None:
        """The log ends there now; what is left of it has been looked through for transactions."""
        self.high_watermark = min(self.high_watermark, end_offset)
        self._found_offset = min(self._found_offset, self.high_watermark)
        self._before.clear()
        self._remembered_offset = end_offset

    # -- what is not committed ----------------------------------------------------------------------

    def remember(self, base_offset: int, producer_id: int, producer: ProducerRow | None) -> None:
        """A batch is appended at `base_offset`: `producer` is what was known of its producer before.

        What is committed is never taken back.
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
        """Whether it is known how the producers were when the log ended there."""
        return end_offset >= max(self._remembered_offset, self.high_watermark)

    def take_back(self, end_offset: int, producers: ProducerTable) -> None:
        """The producers are as they were when the log ended at `end_offset`, which `remembers` has to say of it."""
        before = self._before
        while before and before[-1][0] >= end_offset:
            _, producer_id, producer = before.pop()
            producers.put_back(producer_id, producer)

    def refusal(self, epoch: int) -> DuramenError | None:
        """Why this node may not order a batch that came in that epoch."""
        if epoch == self.leader_epoch:
            return None
        now = "none" if self.leader_epoch is None else self.leader_epoch
        return NotLeader(
            f"the batch belongs to leader epoch {epoch}, and this node now leads the partition in epoch {now}"
        )
