"""The status of a stream's table: its content, its lag, and its error, from the table, the log and the job."""

from collections.abc import Mapping
from typing import Any

import msgspec

from duramen.base.errors import DuramenError
from duramen.client import BrokerCluster
from duramen.spark.declared import DeclaredTable
from duramen.spark.tables.registry import find_dead_letters, find_table
from duramen.spark.translation.log import SourceLog, bounds, newest_wait_ms
from duramen.spark.translation.progress import look

__all__ = ["TranslationStatus", "status_of"]


class TranslationStatus(msgspec.Struct):
    """A stream's table. None means unknown: `error` is the reason, or what stops the job.

    `lag_seconds` is the wait of the first record that the table lacks, `lag_bytes` the approximate size of those
    records in the log. `looked_ms` is when a job last looked at it.
    """

    stream: str
    format: str
    location: str
    lag_seconds: float | None = None
    lag_records: int | None = None
    lag_bytes: int | None = None
    files: int | None = None
    rows: int | None = None
    size_bytes: int | None = None
    dead_letters: int | None = None
    last_commit_ms: int | None = None
    looked_ms: int | None = None
    error: str = ""


def status_of(
    table: DeclaredTable, stream: Mapping[str, Any], cluster: BrokerCluster, now_ms: int
) -> TranslationStatus:
    """The status of one table; `stream` is the node's description. Never raises errors of this table."""
    declaration = table.declaration
    found = TranslationStatus(declaration.stream, declaration.format, declaration.storage.location)
    try:
        _ask(found, table, stream, cluster, now_ms)
    except DuramenError as error:
        found.error = f"{error} [{error.id}]"
    return found


def _ask(
    found: TranslationStatus, table: DeclaredTable, stream: Mapping[str, Any], cluster: BrokerCluster, now_ms: int
) -> None:
    declaration = table.declaration
    log = SourceLog("", declaration.stream, declaration.stream_id)
    there = bounds(cluster, log)
    note = look(cluster, declaration.stream, there)
    if note is not None:
        found.looked_ms, found.error = note.at_ms, note.error
    ends: Mapping[int, int] = {}
    opened = find_table(declaration)
    if opened is not None:
        ends = opened.ends()
        statistics = opened.statistics()
        found.files, found.rows, found.size_bytes = statistics.files, statistics.rows, statistics.size_bytes
        found.last_commit_ms = statistics.last_commit_ms
        dead = find_dead_letters(declaration)
        found.dead_letters = 0 if dead is None else dead.statistics().rows
    at = {partition: ends.get(partition, first) for partition, (first, _) in there.items()}
    lacking = {partition: max(0, end - at[partition]) for partition, (_, end) in there.items()}
    found.lag_records = sum(lacking.values())
    found.lag_bytes = sum(_bytes(part, lacking.get(part["partition"], 0)) for part in stream["partitions"])
    behind = [
        (one, max(at[one], there[one][0])) for one, count in lacking.items() if count and there[one][0] < there[one][1]
    ]
    found.lag_seconds = newest_wait_ms(cluster, log, behind, now_ms) / 1000


def _bytes(part: Mapping[str, Any], records: int) -> int:
    """The bytes of that many records of a partition, at the average size."""
    there = max(1, int(part["high_watermark"]) - int(part["start_offset"]))
    return int(part["bytes"]) * min(records, there) // there
