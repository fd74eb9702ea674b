"""Counters, gauges and histograms as plain objects: an increment is an addition to an attribute, nothing more.

The instruments know no exposition format; the HTTP door renders them. Every metric there is stands in the
catalogue below, from which the docs are written. Names follow Prometheus: base units, `_total` on counters.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = ["CATALOGUE", "Counter", "Histogram", "Metric", "Metrics"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is: its name, kind, labels and one sentence for people."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    doc: str
    labels: tuple[str, ...] = ()


class Counter:
    """A number that others add to (`value += 1`) or, as a gauge, set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Histogram:
    """Counts of observations by upper bound, with their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
_BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0)
BOUNDS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"duramen_wal_sync_seconds": _SECONDS, "duramen_wal_write_bytes": _BYTES}
)

CATALOGUE: tuple[Metric, ...] = (
    Metric("duramen_wal_sync_seconds", "histogram", "Time of one sync of the write-ahead log."),
    Metric("duramen_wal_write_bytes", "histogram", "Bytes written to the write-ahead log at once."),
    Metric("duramen_wal_bytes", "gauge", "Bytes of the write-ahead log that are not yet recyclable."),
    Metric("duramen_wal_full_total", "counter", "Appends that had to wait because wal.max.bytes was reached."),
    Metric("duramen_pending_bytes", "gauge", "Bytes in memory that wait for their copy into a segment."),
    Metric("duramen_append_waiting", "gauge", "Appends that wait for room in the write-ahead log or in memory."),
    Metric("duramen_copied_bytes_total", "counter", "Bytes copied from memory into segments."),
    Metric("duramen_checkpoints_total", "counter", "Node checkpoints written."),
    Metric("duramen_storage_failed", "gauge", "1 when a failed sync has stopped all writes until restart."),
    Metric("duramen_segments_rewritten_total", "counter", "Segments written again after a failed sync."),
    Metric("duramen_storage_full", "gauge", "1 while appends are refused because the disk is full."),
    Metric("duramen_damaged_ranges_total", "counter", "Damaged ranges found in segments and the write-ahead log."),
    Metric("duramen_recovery_seconds", "gauge", "How long the last start took to recover the logs."),
    Metric("duramen_logs", "gauge", "Logs this node holds."),
    Metric("duramen_streams", "gauge", "Streams there are, internal ones included."),
    Metric("duramen_records_in_total", "counter", "Records appended.", ("stream",)),
    Metric("duramen_bytes_in_total", "counter", "Bytes of record batches appended.", ("stream",)),
    Metric("duramen_bytes_out_total", "counter", "Bytes of record batches served to consumers.", ("stream",)),
    Metric("duramen_groups", "gauge", "Consumer groups by state.", ("state",)),
    Metric("duramen_fetches_waiting", "gauge", "Fetches that wait for records."),
    Metric("duramen_kafka_connections", "gauge", "Open connections of the Kafka door."),
    Metric("duramen_kafka_requests_total", "counter", "Requests of the Kafka door.", ("api",)),
    Metric("duramen_kafka_errors_total", "counter", "Connections of the Kafka door closed for a bad request."),
    Metric("duramen_kafka_request_bytes", "gauge", "Memory held by requests that are not answered yet."),
    Metric(
        "duramen_kafka_paused_reads_total", "counter", "Times that reading from a connection was paused.", ("cause",)
    ),
    Metric("duramen_kafka_reclaimed_total", "counter", "Stalled connections closed because others waited for memory."),
    Metric("duramen_nats_connected", "gauge", "1 while the NATS door is connected to its server."),
    Metric("duramen_nats_messages_total", "counter", "Messages taken from NATS.", ("stream",)),
    Metric("duramen_nats_duplicates_total", "counter", "Messages whose Nats-Msg-Id was known already.", ("stream",)),
    Metric("duramen_nats_acks_total", "counter", "Acknowledgements sent on reply subjects.", ("stream",)),
    Metric("duramen_nats_refused_total", "counter", "Messages refused or dropped, by cause.", ("stream", "cause")),
    Metric("duramen_nats_inflight_bytes", "gauge", "Bytes of NATS messages that are not acknowledged yet."),
    Metric("duramen_nats_gaps_total", "counter", "Times in which the NATS door was not subscribed.", ("stream",)),
    Metric("duramen_nats_gap_seconds_total", "counter", "How long those times were, together.", ("stream",)),
    Metric(
        "duramen_nats_last_gap_start_seconds",
        "gauge",
        "When the last of those times of its cause began, in seconds since 1970.",
        ("stream", "cause"),
    ),
    Metric(
        "duramen_nats_last_gap_end_seconds",
        "gauge",
        "When the last of those times of its cause ended, in seconds since 1970.",
        ("stream", "cause"),
    ),
    Metric("duramen_nats_server_restarts_total", "counter", "Times that the embedded nats-server was started again."),
    Metric("duramen_http_requests_total", "counter", "Requests of the HTTP door by status.", ("status",)),
)


class Metrics:
    """The instruments of one node, made on first use; a label set is a tuple in the catalogue's order."""

    __slots__ = ("_catalogue", "_counters", "_histograms")

    def __init__(self) -> None:
        self._catalogue = {metric.name: metric for metric in CATALOGUE}
        self._counters: dict[tuple[str, tuple[str, ...]], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def counter(self, name: str, *labels: str) -> Counter:
        """The counter or gauge `name` with these label values; bind it once, outside the hot path."""
        if len(self._catalogue[name].labels) != len(labels):
            raise ValueError(f"{name} takes the labels {self._catalogue[name].labels}")
        return self._counters.setdefault((name, labels), Counter())

    def histogram(self, name: str) -> Histogram:
        """The histogram `name`."""
        return self._histograms.setdefault(name, Histogram(BOUNDS[name]))

    def forget(self, label: str, value: str) -> None:
        """Drop every series whose `label` is `value`: a stream's series go with the stream."""
        for name, labels in list(self._counters):
            if (label, value) in zip(self._catalogue[name].labels, labels, strict=True):
                del self._counters[(name, labels)]

    def counters(self) -> Mapping[tuple[str, tuple[str, ...]], Counter]:
        """Every counter and gauge by name and label values."""
        return self._counters

    def histograms(self) -> Mapping[str, Histogram]:
        """Every histogram by name."""
        return self._histograms
