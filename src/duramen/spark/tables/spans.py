"""Offset ranges of tables: whether they may be committed, and the files with their rows. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from duramen.base.errors import TableConflict
from duramen.spark.tables.port import DataFile, Statistics, TableSpan

__all__ = ["check_spans", "chosen", "counted", "new_begins"]


def check_spans(stream: str, ends: Mapping[int, int], spans: Sequence[TableSpan]) -> None:
    """Raise TableConflict unless each span starts at its partition's end; without an end, anywhere."""
    for span in spans:
        end = ends.get(span.partition, span.begin)
        if span.begin != end:
            raise TableConflict(
                f"the table of {stream} has partition {span.partition} up to offset {end}, "
                f"so offsets {span.begin} to {span.end} cannot be added: another writer committed first"
            )


def new_begins(ends: Mapping[int, int], spans: Sequence[TableSpan]) -> dict[int, int]:
    """The starts of partitions without an end."""
    return {span.partition: span.begin for span in spans if span.partition not in ends}


def chosen(files: Iterable[DataFile], spans: Sequence[TableSpan] | None) -> list[DataFile]:
    """The files that may have rows that count in `spans`, or all, by partition and offset."""
    kept = [
        file
        for file in files
        if spans is None
        or any(
            s.partition == file.partition and s.begin <= file.last_counted and file.first_offset < s.end for s in spans
        )
    ]
    return sorted(kept, key=lambda file: (file.partition, file.first_offset, file.path))


def counted(files: Sequence[DataFile]) -> Statistics:
    """The totals of files; the newest one has the time of the last commit."""
    return Statistics(
        len(files),
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
        max((file.modified_ms for file in files), default=None),
    )
