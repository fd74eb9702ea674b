"""The state that the parts of one view share: the view itself once it is loaded, and its public facts."""

from typing import NamedTuple

from duramen.base.errors import SnapshotNotReached
from duramen.broker.partition import Partition
from duramen.keyed.view import KeyedView

__all__ = ["ViewFacts", "ViewState"]


class ViewFacts(NamedTuple):
    """The description of a view: offsets, number of keys, records above S0, memory, and the reason if it is stopped.

    `superseded`, of those records, was counted at the last sample. `file_bytes` are those of a table in files;
    `sampled_ms` is when the position was reached, about.
    """

    position: int = 0
    s0: int = 0
    horizon: int = 0
    keys: int = 0
    records: int = 0
    memory_bytes: int = 0
    problem: str = ""
    superseded: int = 0
    table_bytes: int = 0
    file_bytes: int = 0
    is_filed: bool = False
    sampled_ms: int = 0

    @property
    def bytes_per_key(self) -> float:
        """Memory of the table and all else, by keys."""
        return self.memory_bytes / self.keys if self.keys else 0.0


class ViewState:
    """`view` is None while it is being loaded. `facts` are those of the last job's end."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.view: KeyedView | None = None
        self.loaded_once = False
        self.closed = False
        self.facts = ViewFacts()
        self.superseded = 0

    @property
    def name(self) -> str:
        """The partition, for reports."""
        return f"partition {self.partition.index} of {self.partition.stream.name}"

    def loaded_view(self) -> KeyedView:
        """The view. Raises SnapshotNotReached while it is being loaded."""
        if self.view is None:
            raise SnapshotNotReached("the view is being built")
        return self.view

    def note(self) -> None:
        """Publish the results of the last job, and let compaction advance to S0."""
        view = self.view
        if view is None:
            return
        table_bytes, filed = view.latest.size_bytes, view.filed
        self.facts = ViewFacts(
            view.position, view.s0, view.horizon, view.keys, view.prev.records, view.memory_bytes,
            self.facts.problem, self.superseded, table_bytes, 0 if filed is None else filed.file_bytes,
            filed is not None, view.samples.at(view.position).time_ms,
        )  # fmt: skip
        if not self.closed:
            self.partition.log.view_floor = view.s0

    def set_problem(self, problem: str) -> None:
        """Why the view does not advance; empty if it does."""
        self.facts = self.facts._replace(problem=problem)
