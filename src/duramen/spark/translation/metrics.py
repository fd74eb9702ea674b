"""The state of each table in a job, and its metrics for Prometheus. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from duramen.base.errors import DuramenError
from duramen.base.metrics_tables import TABLE_METRICS
from duramen.spark.translation.round import RoundOutcome

__all__ = ["Account", "render"]


@dataclass(slots=True)
class Account:
    """Counts of one table since the start of the job; `error` is that of its last round, empty after a success."""

    records: int = 0
    bad: int = 0
    lost: int = 0
    read_bytes: int = 0
    commits: int = 0
    failures: int = 0
    lag_ms: int = 0
    lag_records: int = 0
    last_commit_ms: int = 0
    error: str = ""

    def add(self, outcome: RoundOutcome, now_ms: int) -> None:
        """A round succeeded."""
        self.error = ""
        if outcome.committed:
            self.commits += 1
            self.last_commit_ms = now_ms
            self.records += outcome.records
            self.bad += outcome.bad
            self.lost += outcome.lost
            self.read_bytes += outcome.read_bytes

    def fail(self, error: DuramenError) -> None:
        """A round failed."""
        self.failures += 1
        self.error = f"{' '.join(str(error).split())} [{error.id}]"

    def values(self) -> Mapping[str, float]:
        """The values by metric name."""
        return {
            "duramen_table_lag_seconds": self.lag_ms / 1000,
            "duramen_table_lag_records": self.lag_records,
            "duramen_table_records_total": self.records,
            "duramen_table_dead_letters_total": self.bad,
            "duramen_table_lost_records_total": self.lost,
            "duramen_table_read_bytes_total": self.read_bytes,
            "duramen_table_commits_total": self.commits,
            "duramen_table_failures_total": self.failures,
            "duramen_table_failing": bool(self.error),
            "duramen_table_last_commit_seconds": self.last_commit_ms / 1000,
        }


def render(accounts: Mapping[str, Account]) -> str:
    """Prometheus' text format. Stream names need no escapes: they have only letters, digits, `.`, `_` and `-`."""
    return "".join(f"{line}\n" for line in _lines({name: one.values() for name, one in sorted(accounts.items())}))


def _lines(values: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for metric in TABLE_METRICS:
        yield f"# HELP {metric.name} {metric.doc}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for stream, found in values.items():
            yield f'{metric.name}{{stream="{stream}"}} {float(found[metric.name]):.17g}'
