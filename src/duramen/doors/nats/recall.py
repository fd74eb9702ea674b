"""Recalls recent message ids of streams from their logs: at a start, and on a new leader."""

from collections.abc import Callable, Iterable

from duramen.base.errors import BatchCorrupt, DuramenError, LogDamaged
from duramen.broker.partition import Partition
from duramen.codec.batch import Header
from duramen.codec.headers import find_header_values
from duramen.doors.nats.bound import BoundStream
from duramen.doors.nats.capture import Capture
from duramen.doors.nats.headers import MESSAGE_ID_HEADER, SUBJECT_HEADER
from duramen.service.broker import Broker
from duramen.storage.scan import scan_log

__all__ = ["recall"]


Places = Iterable[tuple[BoundStream, Partition]]


def recall(
    broker: Broker, capture: Capture, places: Places, report: Callable[[str], object], done: Callable[[], None]
) -> None:
    """Fill the tables of bound streams from these partitions, as far back as their windows; then `done()`.

    Only messages from NATS count. If a log is damaged, `report` says that duplicates may be stored, and the rest is
    read.
    """
    _Recall(broker, capture, places, report, done).go_on()


class _Recall:
    def __init__(
        self,
        broker: Broker,
        capture: Capture,
        places: Places,
        report: Callable[[str], object],
        done: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._capture = capture
        self._report = report
        self._done = done
        self._left = iter(
            [
                (bound, partition)
                for bound, partition in places
                if bound.window_ms and partition.log.high_watermark > partition.log.start_offset
            ]
        )

    def go_on(self) -> None:
        """Begin with the next partition."""
        following = next(self._left, None)
        if following is None:
            self._done()
            return
        bound, partition = following
        self._capture.remember(bound)
        since_ms = self._broker.now_ms() - bound.window_ms

        def found(offset: int, _: int, error: DuramenError | OSError | None) -> None:
            if isinstance(error, LogDamaged):
                offset, error = _segment_at(partition, since_ms), None
            if error is not None or offset < 0:
                finished(error)
            else:
                scan_log(self._broker.store, partition.log, offset, take, finished, lost)

        def lost(first: int, last: int, error: DuramenError) -> None:
            self._say(bound, LogDamaged(f"records {first} to {last} of partition {partition.index}: {error}"))

        def take(_: Header, batch: bytes) -> None:
            try:
                for offset, time_ms, values in find_header_values(batch, (MESSAGE_ID_HEADER, SUBJECT_HEADER)):
                    if time_ms >= since_ms and values[0]:
                        bound.seen.reserve(always=True)
                        bound.seen.add(
                            self._capture.fingerprint(values[0], partition), partition.index, offset, time_ms
                        )
            except BatchCorrupt as error:
                self._say(bound, error)

        def finished(error: DuramenError | OSError | None) -> None:
            if error is not None:
                self._say(bound, error)
            self._broker.store.soon(self.go_on)

        partition.find_offset(since_ms, found)

    def _say(self, bound: BoundStream, error: DuramenError | OSError) -> None:
        self._report(f"some message ids of stream {bound.name} are lost, so duplicates may be stored: {error}")


def _segment_at(partition: Partition, since_ms: int) -> int:
    """The start of the segment with the first record of that time: damage hides the exact place; -1 for none."""
    return next((one.base_offset for one in partition.log.segments if one.max_timestamp >= since_ms), -1)
