"""The metrics of `duramen table run`, as data: it has an address of its own for them, and no node has them."""

from typing import Final

from duramen.base.metrics import Metric

__all__ = ["TABLE_METRICS"]

TABLE_METRICS: Final = (
    Metric(
        "duramen_table_lag_seconds", "gauge", "How long the first record that a table lacks has waited.", ("stream",)
    ),
    Metric("duramen_table_lag_records", "gauge", "Records that a table lacks, counted by offsets.", ("stream",)),
    Metric("duramen_table_records_total", "counter", "Records that this job has committed.", ("stream",)),
    Metric("duramen_table_dead_letters_total", "counter", "Records that could not be decoded.", ("stream",)),
    Metric("duramen_table_lost_records_total", "counter", "Offsets that were gone before they were read.", ("stream",)),
    Metric("duramen_table_read_bytes_total", "counter", "Bytes of records read, not compressed.", ("stream",)),
    Metric("duramen_table_commits_total", "counter", "Rounds that were committed.", ("stream",)),
    Metric("duramen_table_failures_total", "counter", "Rounds that failed.", ("stream",)),
    Metric("duramen_table_failing", "gauge", "1 while the last round of a table has failed.", ("stream",)),
    Metric("duramen_table_last_commit_seconds", "gauge", "When the last round was committed, since 1970.", ("stream",)),
)
