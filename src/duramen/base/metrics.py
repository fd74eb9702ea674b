"""Counters, gauges and histograms as plain objects: an increment adds to an attribute and does nothing else.

The instruments know no exposition format; the HTTP door renders them. Values that cost memory or time to keep up to
date are computed on request. The catalogue below has every metric, and the docs are generated from it. Names follow
Prometheus: base units, `_total` on counters.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

__all__ = [
    "BOUNDS",
    "CATALOGUE",
    "MOST_SERIES",
    "Computed",
    "Counter",
    "Histogram",
    "Labels",
    "Metric",
    "Metrics",
    "Sample",
]

Labels = tuple[str, ...]
"""The values of a metric's labels, in the catalogue's order."""

Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, kind, labels and one sentence of documentation."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    doc: str
    labels: tuple[str, ...] = ()


MOST_SERIES: Final = 10_000
"""How many series of one metric are shown unless a setting says otherwise."""


class Counter:
    """A number that others add to (`value += 1`) or, as a gauge, set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0


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

    def observe_all(self, values: Sequence[float]) -> None:
        """Count several observations."""
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.sum += sum(values)


_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
_BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0)
_WAITING_SECONDS = (*_SECONDS, 30.0, 60.0)
_RECORDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 50_000.0)
BOUNDS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "duramen_wal_sync_seconds": _SECONDS,
        "duramen_wal_write_bytes": _BYTES,
        "duramen_batch_records": _RECORDS,
        "duramen_batch_bytes": _BYTES,
        "duramen_kafka_request_seconds": _WAITING_SECONDS,
        "duramen_event_loop_delay_seconds": _SECONDS,
        "duramen_gc_pause_seconds": _SECONDS,
    }
)

CATALOGUE: tuple[Metric, ...] = (
    Metric("duramen_ready", "gauge", "1 while every door accepts requests, as in /readyz."),
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
    Metric("duramen_compactions_total", "counter", "Completed rounds of compaction, each over one log."),
    Metric("duramen_compaction_failures_total", "counter", "Rounds of compaction that failed."),
    Metric("duramen_compaction_read_bytes_total", "counter", "Bytes of segments that compaction has read."),
    Metric("duramen_compaction_written_bytes_total", "counter", "Bytes of segments that compaction has written."),
    Metric("duramen_compaction_running", "gauge", "1 while a log is being compacted."),
    Metric("duramen_storage_full", "gauge", "1 while appends are refused because the disk is full."),
    Metric("duramen_damaged_ranges_total", "counter", "Damaged ranges found in segments and the write-ahead log."),
    Metric(
        "duramen_quarantined_ranges",
        "gauge",
        "Known damaged ranges of segments, which are not served.",
    ),
    Metric(
        "duramen_repaired_ranges_total",
        "counter",
        "Damaged ranges of segments that were repaired from another replica.",
    ),
    Metric(
        "duramen_rows_damaged_total",
        "counter",
        "Damage found in rows of coordinators, such as those of queue spaces, and in their checkpoints.",
    ),
    Metric("duramen_states_lost", "gauge", "Partitions whose rows are lost on this node: requests get state-damaged."),
    Metric("duramen_scrubbed_bytes_total", "counter", "Bytes of segments, views and rows that were checked."),
    Metric("duramen_scrub_rounds_total", "counter", "Completed rounds of the scrubber over all segments."),
    Metric("duramen_recovery_seconds", "gauge", "Time that the last start took to recover the logs."),
    Metric("duramen_logs", "gauge", "Logs of this node."),
    Metric("duramen_streams", "gauge", "Streams, internal ones included."),
    Metric("duramen_records_in_total", "counter", "Records appended.", ("stream",)),
    Metric("duramen_bytes_in_total", "counter", "Bytes of record batches appended.", ("stream",)),
    Metric("duramen_records_out_total", "counter", "Records served to consumers, counted by offsets.", ("stream",)),
    Metric("duramen_bytes_out_total", "counter", "Bytes of record batches served to consumers.", ("stream",)),
    Metric("duramen_batch_records", "histogram", "Records of one appended batch."),
    Metric("duramen_batch_bytes", "histogram", "Bytes of one appended batch."),
    Metric("duramen_log_start_offset", "gauge", "The log start offset of a partition.", ("stream", "partition")),
    Metric(
        "duramen_log_end_offset",
        "gauge",
        "The high watermark of a partition: consumers read below it.",
        ("stream", "partition"),
    ),
    Metric("duramen_log_bytes", "gauge", "Bytes of a partition's record batches.", ("stream", "partition")),
    Metric(
        "duramen_queue_shard_entries",
        "gauge",
        "Entries of all queues of a shard of a queue space that this node leads.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_queue_shard_bytes",
        "gauge",
        "Bytes of these entries, as `duramen queue stats` counts them.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_view_keys",
        "gauge",
        "Keys of a partition of a keyed stream, deleted ones included until compaction has dropped their tombstones.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_view_superseded_records",
        "gauge",
        "Records of a partition of a keyed stream that newer ones supersede and that snapshots may still show, as of"
        " a second ago.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_view_position",
        "gauge",
        "The offset before which everything is in the view of a partition of a keyed stream: its newest snapshot.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_view_lag_records",
        "gauge",
        "Records that are committed and not yet in the view, counted by offsets.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_view_oldest_snapshot",
        "gauge",
        "The offset of the oldest snapshot that can be read of a partition of a keyed stream (S0).",
        ("stream", "partition"),
    ),
    Metric("duramen_view_memory_bytes", "gauge", "Memory of a view.", ("stream", "partition")),
    Metric("duramen_view_table_file_bytes", "gauge", "Bytes of a table of keys in files.", ("stream", "partition")),
    Metric("duramen_view_bytes_per_key", "gauge", "Memory of a view for each key.", ("stream", "partition")),
    Metric(
        "duramen_view_stands",
        "gauge",
        "1 while a view is stopped because of damage or missing memory; the node's log has the reason.",
        ("stream", "partition"),
    ),
    Metric(
        "duramen_share_records_total",
        "counter",
        "Records of share groups by outcome: acquired, accepted, released, rejected, or expired (the lock timed out).",
        ("what",),
    ),
    Metric("duramen_share_sessions", "gauge", "Open share sessions."),
    Metric(
        "duramen_groups",
        "gauge",
        "Groups by state, and by kind: classic, consumer (of the consumer protocol) or share.",
        ("state", "kind"),
    ),
    Metric(
        "duramen_transactions_total",
        "counter",
        "Transactions by outcome: begun, committed or aborted.",
        ("what",),
    ),
    Metric(
        "duramen_spark_batches_total",
        "counter",
        "Batches of Spark's exactly-once sink by outcome: decided, or refused, because another run writes or the "
        "batch was repeated with another range.",
        ("what",),
    ),
    Metric("duramen_transactions_open", "gauge", "Transactions that are begun and not yet committed or aborted."),
    Metric(
        "duramen_transaction_longest_open_seconds",
        "gauge",
        "Age of the oldest open transaction; 0 if there is none.",
    ),
    Metric(
        "duramen_group_lag_records",
        "gauge",
        "Records of a partition after a group's committed offset; of a share group those that it is not done with. In "
        "light topics up to 1,000 are counted. In a cluster only the group's coordinator reports it; for partitions "
        "with other leaders the value is at most a minute old.",
        ("group", "stream", "partition"),
    ),
    Metric(
        "duramen_group_lag_seconds",
        "gauge",
        "Age of the first of those records; 0 if there is none. If its batch is not in memory, the value may be too "
        "high by the time span of 64 KiB of the log, or of a segment that was not read since the start.",
        ("group", "stream", "partition"),
    ),
    Metric("duramen_fetches_waiting", "gauge", "Fetches that wait for records."),
    Metric(
        "duramen_partitions_offline",
        "gauge",
        "Partitions of the cluster without a leader. This metric and the next ones up to duramen_nodes exist on "
        "cluster nodes only.",
    ),
    Metric(
        "duramen_partitions_under_replicated",
        "gauge",
        "Partitions of this leader with replicas that are not in sync.",
    ),
    Metric(
        "duramen_partitions_under_min_isr",
        "gauge",
        "Partitions of this leader with fewer in-sync replicas than min.insync.replicas: they refuse acks=all.",
    ),
    Metric("duramen_partition_leaders", "gauge", "Partitions whose leader is this node."),
    Metric("duramen_partition_replicas", "gauge", "Partitions of which this node has a replica."),
    Metric(
        "duramen_isr_shrinks_total",
        "counter",
        "Times that a replica left the in-sync set of a partition of this leader.",
    ),
    Metric(
        "duramen_isr_expands_total",
        "counter",
        "Times that a replica joined the in-sync set of a partition of this leader.",
    ),
    Metric(
        "duramen_leader_elections_total",
        "counter",
        "Leader elections of partitions since this node joined; every node counts all of the cluster.",
    ),
    Metric(
        "duramen_unclean_leader_elections_total",
        "counter",
        "Unclean leader elections, which may lose acknowledged records, since this node joined; every node counts "
        "all of the cluster.",
    ),
    Metric("duramen_replica_fetch_in_bytes_total", "counter", "Bytes of record batches that came from other replicas."),
    Metric("duramen_replica_fetch_out_bytes_total", "counter", "Bytes of record batches that went to other replicas."),
    Metric("duramen_controller_active", "gauge", "1 on the node that is the active controller."),
    Metric("duramen_quorum_epoch", "gauge", "The epoch of the controller's quorum that this node knows."),
    Metric("duramen_quorum_leader_id", "gauge", "The quorum's leader that this node knows; -1: none."),
    Metric(
        "duramen_quorum_lag_records",
        "gauge",
        "Records of the metadata log that a node lacks; on the quorum's leader only.",
        ("node",),
    ),
    Metric(
        "duramen_metadata_applied_offset", "gauge", "The offset up to which this node has applied the metadata log."
    ),
    Metric("duramen_nodes", "gauge", "Nodes of the cluster by state: live or fenced.", ("state",)),
    Metric("duramen_kafka_connections", "gauge", "Open connections of the Kafka door."),
    Metric("duramen_kafka_requests_total", "counter", "Requests of the Kafka door.", ("api",)),
    Metric(
        "duramen_kafka_request_seconds",
        "histogram",
        "Time from a complete request to its response, including the waits of fetches and joins.",
        ("api",),
    ),
    Metric(
        "duramen_kafka_request_errors_total",
        "counter",
        "Requests with errors in the response, once for each distinct error.",
        ("api", "error"),
    ),
    Metric("duramen_kafka_errors_total", "counter", "Connections of the Kafka door closed for a bad request."),
    Metric("duramen_kafka_request_bytes", "gauge", "Memory held by requests that are not answered yet."),
    Metric("duramen_kafka_paused_reads_total", "counter", "Pauses of reading from a connection.", ("cause",)),
    Metric("duramen_kafka_reclaimed_total", "counter", "Stalled connections closed because others waited for memory."),
    Metric(
        "duramen_inventory_throttled_total",
        "counter",
        "Requests of Kafka clients and batches of NATS messages that were delayed by a quota of the inventory.",
        ("quota",),
    ),
    Metric(
        "duramen_inventory_topics_refused_total",
        "counter",
        "Topics that were not created or moved because of a quota of the inventory.",
    ),
    Metric(
        "duramen_inventory_batches_refused_total",
        "counter",
        "Batches of records that were not stored because of a quota of the inventory.",
        ("quota",),
    ),
    Metric("duramen_nats_connected", "gauge", "1 while the NATS door is connected to its server."),
    Metric("duramen_nats_messages_total", "counter", "Messages received from NATS.", ("stream",)),
    Metric("duramen_nats_duplicates_total", "counter", "Messages with a known Nats-Msg-Id.", ("stream",)),
    Metric("duramen_nats_acks_total", "counter", "Acknowledgements sent on reply subjects.", ("stream",)),
    Metric("duramen_nats_refused_total", "counter", "Messages refused or dropped, by cause.", ("stream", "cause")),
    Metric("duramen_nats_inflight_bytes", "gauge", "Bytes of NATS messages that are not acknowledged yet."),
    Metric(
        "duramen_nats_gaps_total", "counter", "Gaps: intervals in which the NATS door was not subscribed.", ("stream",)
    ),
    Metric("duramen_nats_gap_seconds_total", "counter", "Total duration of gaps.", ("stream",)),
    Metric(
        "duramen_nats_last_gap_start_seconds",
        "gauge",
        "Start of the last gap with this cause, in seconds since 1970.",
        ("stream", "cause"),
    ),
    Metric(
        "duramen_nats_last_gap_end_seconds",
        "gauge",
        "End of the last gap with this cause, in seconds since 1970.",
        ("stream", "cause"),
    ),
    Metric("duramen_nats_server_restarts_total", "counter", "Restarts of the embedded nats-server."),
    Metric("duramen_http_requests_total", "counter", "Requests of the HTTP door by status.", ("status",)),
    Metric(
        "duramen_event_loop_delay_seconds",
        "histogram",
        "Delay of a timer that the event loop runs five times a second, in steps of a millisecond.",
    ),
    Metric(
        "duramen_event_loop_delay_longest_seconds",
        "gauge",
        "The longest such delay since the node was ready.",
    ),
    Metric(
        "duramen_process_resident_bytes",
        "gauge",
        "Resident memory of the node's process, if the system reports it.",
    ),
    Metric("duramen_memory_limit_bytes", "gauge", "The setting memory.limit.bytes."),
    Metric("duramen_process_cpu_seconds_total", "counter", "Processor time of the node's process."),
    Metric("duramen_gc_pause_seconds", "histogram", "Time of one garbage collection."),
    Metric("duramen_gc_pause_longest_seconds", "gauge", "The longest garbage collection since the node was ready."),
    Metric(
        "duramen_series_left_out",
        "gauge",
        "Series of a metric that are omitted, because there are more than metrics.partitions.max.",
        ("metric",),
    ),
)


class Computed(NamedTuple):
    """Computes the series of a metric, and the number of omitted ones."""

    samples: Callable[[], Iterable[Sample]]
    left_out: Callable[[], int]


class Metrics:
    """The instruments of one node, made on first use; a label set is a tuple in the catalogue's order."""

    __slots__ = ("_catalogue", "_computed", "_counters", "_histograms", "most_series")

    def __init__(self) -> None:
        self._catalogue = {metric.name: metric for metric in CATALOGUE}
        self._counters: dict[tuple[str, Labels], Counter] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._computed: dict[str, Computed] = {}
        self.most_series = MOST_SERIES

    def counter(self, name: str, *labels: str) -> Counter:
        """The counter or gauge `name` with these label values; bind it once, outside the hot path."""
        self._check(name, labels)
        found = self._counters.get((name, labels))
        if found is None:
            found = self._counters[name, labels] = Counter()
        return found

    def histogram(self, name: str, *labels: str) -> Histogram:
        """The histogram `name` with these label values; bind it once, outside the hot path."""
        self._check(name, labels)
        found = self._histograms.get((name, labels))
        if found is None:
            found = self._histograms[name, labels] = Histogram(BOUNDS[name])
        return found

    def compute(
        self, name: str, samples: Callable[[], Iterable[Sample]], left_out: Callable[[], int] = lambda: 0
    ) -> None:
        """Compute the series of the counter or gauge `name` with `samples` on request.

        Other code may run between two samples; `samples` must tolerate that.
        """
        if name not in self._catalogue:
            raise ValueError(f"{name} is not in the catalogue")
        self._computed[name] = Computed(samples, left_out)

    def _check(self, name: str, labels: Labels) -> None:
        if len(self._catalogue[name].labels) != len(labels):
            raise ValueError(f"{name} takes the labels {self._catalogue[name].labels}")

    def forget(self, label: str, value: str) -> None:
        """Drop every series whose `label` is `value`: a stream's series go with the stream."""
        for kept in (self._counters, self._histograms):
            for name, labels in list(kept):
                if (label, value) in zip(self._catalogue[name].labels, labels, strict=True):
                    del kept[(name, labels)]

    def counters(self) -> Mapping[tuple[str, Labels], Counter]:
        """Every counter and gauge by name and label values, but for those that are computed."""
        return self._counters

    def histograms(self) -> Mapping[tuple[str, Labels], Histogram]:
        """Every histogram by name and label values."""
        return self._histograms

    def computed(self) -> Mapping[str, Computed]:
        """The functions of the computed metrics."""
        return self._computed
