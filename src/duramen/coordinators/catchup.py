"""A view brought to the end of what is committed of the log that it is derived from."""

from collections.abc import Callable, Sequence
from functools import partial

from duramen.base.errors import DuramenError
from duramen.broker.partition import Partition
from duramen.codec.batch import Header
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage, scan_log
from duramen.storage.store import Store
from duramen.storage.view.view import View

__all__ = ["CatchingUp"]

Report = Callable[[str], None]
Done = Callable[[DuramenError | OSError | None], None]


class CatchingUp:
    """For a view of the stream `stream`. `take` is handed a log, whom to tell of damage, and a batch with its header.

    `of` is what the view has, in words, and `cost` what it means for users that a record cannot be read.
    """

    def __init__(
        self, store: Store, view: View, take: Callable[[Log, OnDamage, Header, bytes], None], *,
        of: str, stream: str, cost: str,
    ) -> None:  # fmt: skip
        self._store = store
        self._view = view
        self._take = take
        self._of = of
        self._stream = stream
        self._cost = cost

    def fit(self, partitions: Sequence[Partition], report: Report) -> None:
        """Keep of the view what fits the logs that there are: all of it or nothing."""
        logs = [partition.log for partition in partitions]
        if not self._view.belongs_to(logs) or not all(self._view.fits(log) for log in logs):
            report(f"the view of {self._of} does not fit its log: it is derived anew")
            self._view.discard()

    def go_on(self, partitions: Sequence[Partition], report: Report, done: Done) -> None:
        """Apply what the view lacks. What is damaged is reported, and the rest taken in."""
        left = list(partitions)
        while left:
            partition = left.pop()
            log = partition.log
            if self._view.position(log) < log.high_watermark:
                lost = partial(self._lost, partition.index, report)
                scan_log(
                    self._store, log, self._view.position(log), partial(self._found, partition, log, lost),
                    lambda error: done(error) if error is not None else self.go_on(left, report, done),
                    lost,
                )  # fmt: skip
                return
        done(None)

    def _found(self, partition: Partition, log: Log, lost: OnDamage, found: Header, batch: bytes) -> None:
        if partition.log is log:  # else it was begun anew meanwhile: what the old one had says nothing
            self._take(log, lost, found, batch)

    def _lost(self, partition: int, report: Report, first: int, last: int, error: DuramenError) -> None:
        which = f"record {first}" if first == last else f"records {first} to {last}"
        report(f"{which} in partition {partition} of {self._stream} cannot be read, {self._cost}: {error}")
