"""Warns operators when retention deletes records soon after they were written, because of their timestamps."""

from collections.abc import Callable

from duramen.base.units import moment
from duramen.broker.streams import BrokerStreams
from duramen.storage.log.log import Log
from duramen.storage.planning.retention import Late

__all__ = ["LateDeletions"]


class LateDeletions:
    """Reports the first such deletion of each stream, on the node that leads the partition."""

    def __init__(self, streams: BrokerStreams, report: Callable[[str], None]) -> None:
        self._streams = streams
        self._report = report

    def deleted(self, log: Log, gone: Late) -> None:
        """Retention has deleted these records of `log`, whose `late` has them already."""
        stream = self._streams.find_id(log.key.stream_id)
        if stream is None or not stream.partition(log.key.partition).leads:
            return
        if sum(partition.log.late.records for partition in stream.partitions) > gone.records:
            return
        self._report(
            f"retention deletes records of stream {stream.name} that have just been written: {gone.records} of"
            f" partition {log.key.partition}, the newest with the timestamp {moment(gone.newest_ms)}, are older than"
            f" retention.ms={log.config.retention_ms} allows. Raise retention.ms to keep such records, or set"
            " message.timestamp.type=LogAppendTime for retention to count from when records are written;"
            f" `duramen stream describe {stream.name}` counts what is deleted like this from now on"
        )
