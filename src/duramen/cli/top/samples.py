"""A node's metrics at one moment, and the differences between two samples. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MetricsSample", "between", "parse"]

_LINE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")

_OF_VIEWS: Final = (
    "keys", "superseded_records", "oldest_snapshot", "position", "lag_records", "memory_bytes", "bytes_per_key",
)  # fmt: skip

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """Metrics by name, then by their sorted labels; taken at `time_s`, a monotonic clock's."""

    time_s: float
    values: Mapping[str, Mapping[_Labels, float]] = field(default_factory=dict)

    def total(self, name: str) -> float | None:
        """The sum over all labels; None where there is no such metric."""
        series = self.values.get(name)
        return sum(series.values()) if series else None

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The sums by these labels."""
        sums: dict[tuple[str, ...], float] = {}
        for found, value in self.values.get(name, {}).items():
            given = dict(found)
            key = tuple(given.get(label, "") for label in labels)
            sums[key] = sums.get(key, 0.0) + value
        return sums


def parse(text: str, time_s: float) -> MetricsSample:
    """A sample from Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats)."""
    values: dict[str, dict[_Labels, float]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match is None:
            continue
        labels = tuple(sorted((name, _unescaped(value)) for name, value in _LABEL.findall(match[2] or "")))
        values.setdefault(match[1], {})[labels] = float(match[3])
    return MetricsSample(time_s, values)


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)


@dataclass(frozen=True, slots=True)
class _Between:
    before: MetricsSample
    after: MetricsSample

    @property
    def elapsed_s(self) -> float:
        return max(self.after.time_s - self.before.time_s, 1e-9)

    def increase(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The increase of counters by labels; one that fell was reset by a restart of the node."""
        earlier = self.before.by(name, *labels)
        grown = {}
        for key, value in self.after.by(name, *labels).items():
            was = earlier.get(key, 0.0)
            grown[key] = value - was if value >= was else value
        return grown

    def rates(self, name: str, label: str) -> dict[str, float]:
        """By one label: so much a second."""
        return {key: value / self.elapsed_s for (key,), value in self.increase(name, label).items()}

    def rate(self, name: str) -> float | None:
        """Over all labels: so much a second; None where there is no such metric."""
        grown = self.increase(name)
        return _rounded(grown[()] / self.elapsed_s) if grown else None


def between(before: MetricsSample, after: MetricsSample) -> dict[str, Any]:
    """The changes, as `duramen top --format json` prints them; None for values that the node does not have."""
    both = _Between(before, after)
    return {
        "interval_s": round(both.elapsed_s, 3),
        "records_in_per_s": both.rate("duramen_records_in_total"),
        "bytes_in_per_s": both.rate("duramen_bytes_in_total"),
        "records_out_per_s": both.rate("duramen_records_out_total"),
        "bytes_out_per_s": both.rate("duramen_bytes_out_total"),
        "nats_messages_per_s": both.rate("duramen_nats_messages_total"),
        "syncs": _durations(both, "duramen_wal_sync_seconds"),
        "kafka_requests": _durations(both, "duramen_kafka_request_seconds"),
        "event_loop_delay": _durations(both, "duramen_event_loop_delay_seconds"),
        "kafka_connections": _whole(after.total("duramen_kafka_connections")),
        "nats_connected": _flag(after.total("duramen_nats_connected")),
        "storage_full": _flag(after.total("duramen_storage_full")),
        "storage_failed": _flag(after.total("duramen_storage_failed")),
        "pending_bytes": _whole(after.total("duramen_pending_bytes")),
        "kafka_request_bytes": _whole(after.total("duramen_kafka_request_bytes")),
        "nats_inflight_bytes": _whole(after.total("duramen_nats_inflight_bytes")),
        "wal_bytes": _whole(after.total("duramen_wal_bytes")),
        "streams": _streams(both),
        "groups": _groups(after),
        "views": _views(after),
    }


def _durations(both: _Between, name: str) -> dict[str, float | None]:
    """A histogram of seconds: how many, how long on average, and the 99th percentile."""
    count = both.increase(f"{name}_count").get((), 0.0)
    seconds = both.increase(f"{name}_sum").get((), 0.0)
    return {
        "per_s": _rounded(count / both.elapsed_s),
        "mean_ms": _rounded(1000 * seconds / count) if count else None,
        "p99_ms": _quantile_ms(both.increase(f"{name}_bucket", "le"), 0.99) if count else None,
    }


def _quantile_ms(buckets: Mapping[tuple[str, ...], float], quantile: float) -> float | None:
    """From a histogram's growth, linear between its bounds; its last finite bound if the value is above it."""
    bounds = sorted((float(bound), count) for (bound,), count in buckets.items())
    wanted = quantile * bounds[-1][1] if bounds else 0.0
    low, below = 0.0, 0.0
    for bound, count in bounds:
        if count >= wanted and count > below:
            share = (wanted - below) / (count - below)
            return _rounded(1000 * (low if bound == float("inf") else low + share * (bound - low)))
        low, below = bound, count
    return None


def _streams(both: _Between) -> list[dict[str, Any]]:
    rates = {
        field: both.rates(f"duramen_{metric}_total", "stream")
        for field, metric in (
            ("records_in_per_s", "records_in"),
            ("bytes_in_per_s", "bytes_in"),
            ("records_out_per_s", "records_out"),
            ("bytes_out_per_s", "bytes_out"),
        )
    }
    sizes = {name: size for (name,), size in both.after.by("duramen_log_bytes", "stream").items()}
    names = sorted(set(sizes).union(*rates.values()))
    return [
        {
            "name": name,
            **{field: _rounded(values.get(name, 0.0 if values else None)) for field, values in rates.items()},
            "log_bytes": _whole(sizes.get(name)),
        }
        for name in names
    ]


def _groups(after: MetricsSample) -> list[dict[str, Any]]:
    records = after.by("duramen_group_lag_records", "group", "stream")
    seconds: dict[tuple[str, str], float] = {}
    for labels, value in after.values.get("duramen_group_lag_seconds", {}).items():
        given = dict(labels)
        key = given.get("group", ""), given.get("stream", "")
        seconds[key] = max(seconds.get(key, 0.0), value)
    return [
        {
            "id": group,
            "stream": stream,
            "lag_records": _whole(lag),
            "lag_seconds": _rounded(seconds.get((group, stream))),
        }
        for (group, stream), lag in sorted(records.items())
    ]


def _views(after: MetricsSample) -> list[dict[str, Any]]:
    fields = {name: after.by(f"duramen_view_{name}", "stream", "partition") for name in _OF_VIEWS}
    return [
        {
            "stream": stream,
            "partition": int(partition),
            **{name: _whole(values.get((stream, partition))) for name, values in fields.items()},
        }
        for stream, partition in sorted(fields["position"], key=lambda at: (at[0], int(at[1])))
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _flag(value: float | None) -> bool | None:
    return None if value is None else value > 0
