"""The metrics of `duramen table run` as data. It serves them at an address of its own; nodes do not have them."""

from typing import Final

from duramen.base.metrics import Metric

__all__ = ["TABLE_METRICS"]

TABLE_METRICS: Final = (
    Metric("duramen_table_lag_seconds", "gauge", "Age of the first record that a table lacks.", ("stream",)),
    Metric("duramen_table_lag_records", "gauge", "Records that a table lacks, counted by offsets.", ("stream",)),
    Metric("duramen_table_records_total", "counter", "Records that this job has committed.", ("stream",)),
    Metric("duramen_table_dead_letters_total", "counter", "Records that could not be decoded.", ("stream",)),
    Metric(
        "duramen_table_lost_records_total", "counter", "Offsets that were deleted before they were read.", ("stream",)
    ),
    Metric("duramen_table_read_bytes_total", "counter", "Uncompressed bytes of records read.", ("stream",)),
    Metric("duramen_table_commits_total", "counter", "Committed rounds.", ("stream",)),
    Metric("duramen_table_failures_total", "counter", "Failed rounds.", ("stream",)),
    Metric("duramen_table_failing", "gauge", "1 while the last round of a table is a failed one.", ("stream",)),
    Metric(
        "duramen_table_last_commit_seconds", "gauge", "Time of the last commit, in seconds since 1970.", ("stream",)
    ),
)
