"""What replication says of a log: how far it is committed, and who may append to it. Pure."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, NotLeader

__all__ = ["Replicated"]


class Replicated:
    """The part of a log that others decide. A log without one is committed as far as it is synced.

    `high_watermark` never falls but where the log is cut or begun anew. `leader_epoch` is the one in which this node
    orders batches, None where it does not: what still waits then to be ordered is refused. `on_append` is told of each
    batch that is in the log from then on: the epoch, its first offset and the one behind it.
    """

    __slots__ = ("_found_offset", "high_watermark", "leader_epoch", "on_append")

    def __init__(
        self, high_watermark: int, found_offset: int, on_append: Callable[[int, int, int], None] = lambda *_: None
    ) -> None:
        """`found_offset` is the end that a start has found."""
        self._found_offset = found_offset
        self.high_watermark = high_watermark
        self.leader_epoch: int | None = None
        self.on_append = on_append

    @property
    def settled(self) -> bool:
        """Whether all that was there at the start is committed.

        Which transactions ended in it, and where, nobody remembers: until then nothing is stable.
        """
        return self.high_watermark >= self._found_offset

    def cut(self, end_offset: int) -> None:
        """The log ends there now; what is left of it has been looked through for transactions."""
        self.high_watermark = min(self.high_watermark, end_offset)
        self._found_offset = min(self._found_offset, self.high_watermark)

    def refusal(self, epoch: int) -> DuramenError | None:
        """Why this node may not order a batch that came in that epoch."""
        if epoch == self.leader_epoch:
            return None
        now = "none" if self.leader_epoch is None else self.leader_epoch
        return NotLeader(f"the batch came in leader epoch {epoch}, and this node leads the partition in {now} now")
