"""Applies committed entries: in order, each once, and nothing else."""

from collections.abc import Callable, Iterable
from typing import Protocol

from duramen.controller.quorum.entries import data_of, events_of
from duramen.controller.quorum.snapshots import MetadataSnapshot
from duramen.metadata.events import Event
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState
from duramen.raft.epochs import NOTHING, EpochEnd
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import Voters

__all__ = ["ControllerView", "EventsApplied", "MetadataView"]


class MetadataView(Protocol):
    """The state that results from batches."""

    def apply(self, batch: EntryBatch) -> None:
        """Apply a committed batch. Raises BatchCorrupt if this version cannot read it."""

    def image(self) -> bytes:
        """The state in the form of a snapshot."""

    def restore(self, image: bytes) -> None:
        """Load the state of a snapshot. Raises BatchCorrupt."""


class ControllerView:
    """The controller's state. `on_event` gets each applied event, with the epoch that ordered it.

    `on_restored` is called when the whole state was replaced.
    """

    def __init__(
        self,
        on_event: Callable[[Event, int], None] = lambda _, __: None,
        on_restored: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = ControllerState()
        self._on_event = on_event
        self._on_restored = on_restored

    def apply(self, batch: EntryBatch) -> None:
        apply, on_event, epoch = self.state.apply, self._on_event, batch.epoch
        for event in events_of(batch):
            apply(event)
            on_event(event, epoch)

    def image(self) -> bytes:
        return encode_snapshot(self.state)

    def restore(self, image: bytes) -> None:
        self.state = decode_snapshot(image)
        self._on_restored()


class EventsApplied:
    """The position of a view, the voters there, and the bytes of the log applied since its last snapshot."""

    def __init__(self, view: MetadataView, founders: Voters) -> None:
        self._view = view
        self.end = NOTHING
        self.voters = founders
        self.unsaved_bytes = 0

    def restore(self, snapshot: MetadataSnapshot) -> None:
        """Load a later snapshot. Raises BatchCorrupt."""
        if snapshot.end.offset < self.end.offset:
            raise AssertionError(f"what is applied up to {self.end} would go back to {snapshot.end}")
        self._view.restore(snapshot.state)
        self.end, self.voters = snapshot.end, snapshot.voters
        self.unsaved_bytes = 0

    def apply(self, batches: Iterable[EntryBatch]) -> None:
        """Apply committed batches, which follow the applied ones. Raises BatchCorrupt."""
        for batch in batches:
            if batch.first != self.end.offset:
                raise AssertionError(f"the batch at {batch.first} does not follow what is applied up to {self.end}")
            self._view.apply(batch)
            self.end = EpochEnd(batch.epoch, batch.first + batch.entries)
            self.voters = self.voters if batch.voters is None else batch.voters
            self.unsaved_bytes += len(data_of(batch))

    def snapshot(self) -> MetadataSnapshot:
        """A snapshot of the present state."""
        return MetadataSnapshot(self.end, self.voters, self._view.image())
