"""Appends for clients: the outcome of a batch, and whether it is known."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, NotLeader, OutcomeUnknown
from duramen.broker.partition import Partition
from duramen.service.forwarded_requests import AppendResult

__all__ = ["append"]


def append(partition: Partition, batch: bytearray, done: Callable[[AppendResult], None]) -> None:
    """Append as with acks=all, and report the outcome; a batch that is refused at once is not in the log."""
    _Appending(done).begin(partition, batch)


class _Appending:
    __slots__ = ("_begun", "_done")

    def __init__(self, done: Callable[[AppendResult], None]) -> None:
        self._done = done
        self._begun = False

    def begin(self, partition: Partition, batch: bytearray) -> None:
        partition.append(batch, self._told)
        self._begun = True

    def _told(self, base_offset: int, error: DuramenError | None) -> None:
        if error is None:
            self._done(AppendResult(base_offset))
        elif self._begun and isinstance(error, NotLeader):
            # Another leader may have taken it over, so it must not be sent there again.
            self._done(
                AppendResult(-1, OutcomeUnknown(f"{error}; it did when the records came, and they may be kept"), True)
            )
        else:
            self._done(AppendResult(-1, error, self._begun and not error.outcome_known))
