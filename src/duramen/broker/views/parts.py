"""Dependencies of a view: the timings of its stream, its limits, and the services of its node."""

from collections.abc import Callable
from typing import NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.keyed.kernel import Kernel
from duramen.keyed.prev import PAGE_RECORDS
from duramen.storage.store import Store

__all__ = ["ViewLimits", "ViewParts", "ViewTimes"]


class ViewTimes(NamedTuple):
    """`snapshot.retention.ms` and `delete.retention.ms` of the stream, and whether it has a live topic."""

    snapshot_retention_ms: int
    delete_retention_ms: int
    live: bool = False


class ViewLimits(NamedTuple):
    """The number of records in a page of `prev` and in one step of applying, and the periods of samples and saves.

    `pause_ms` is the delay before a view applies more if no request waits: records that are committed one after another
    are applied together. Tables of more than `table_bytes` are in files: then committed records wait for `round_ms` at
    least, unless there are many.
    """

    page_records: int = PAGE_RECORDS
    read_bytes: int = 4 << 20
    pause_ms: int = 10
    sample_ms: int = 1000
    save_ms: int = 60_000
    save_records: int = 5_000_000
    table_bytes: int = 1 << 62
    round_ms: int = 10_000


class ViewParts(NamedTuple):
    """The dependencies of a view."""

    store: Store
    clock: Clock
    deadlines: Deadlines
    kernel: Kernel
    report: Callable[[str], None]
    crowded: Callable[[], str]
    """Why no view may grow now; empty where there is room."""
    limits: ViewLimits
    limit_bytes: int = 1 << 62
    """Memory of all views."""
