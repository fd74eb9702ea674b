"""The stream names in a directory without a running node, from its metadata log and snapshots."""

from typing import NamedTuple
from uuid import UUID

from duramen.base.errors import BatchCorrupt
from duramen.base.ids import METADATA_LOG_ID, METADATA_STREAM_ID, StreamId
from duramen.base.ports import FileSystem
from duramen.codec.batch import CONTROL
from duramen.controller.quorum.entries import events_of, read_batch
from duramen.controller.quorum.small_file import QUORUM_DIRECTORY
from duramen.controller.quorum.snapshots import SnapshotFiles
from duramen.metadata.events import StreamDeleted
from duramen.metadata.snapshot import decode_snapshot
from duramen.metadata.state import ControllerState
from duramen.storage.log.log import LogKey
from duramen.storage.salvage.left import Leftovers, batches_of

__all__ = ["MetadataNames", "read_names"]


class MetadataNames(NamedTuple):
    """The content of the metadata log. `whole`: nothing of it is lost; `deleted` are streams that it deletes.

    `clustered`: it is the log of a cluster, in which a snapshot may replace the batches before it.
    """

    state: ControllerState
    deleted: set[StreamId]
    batches: list[bytes]
    whole: bool
    clustered: bool

    def of(self, key: LogKey | None) -> str:
        """The name of a log's stream; empty if unknown."""
        known = self.state.stream_by_id(key.stream_id) if key is not None else None
        if known is not None:
            return known.name
        return "__cluster_metadata" if key is not None and key.stream_id == METADATA_STREAM_ID else ""


def read_names(files: FileSystem, left: Leftovers) -> MetadataNames:
    """Read the newest snapshot of the metadata, and the metadata log after it."""
    state, expected = _snapshot(files)
    deleted, batches = set[StreamId](), list[bytes]()
    log = left.logs.get(METADATA_LOG_ID)
    if log is None:
        return MetadataNames(state, deleted, batches, whole=False, clustered=bool(state.cluster_id))
    whole, clustered = left.whole, expected > 0
    for found, data in batches_of(files, log):
        if found.next_offset <= expected:
            continue
        try:
            batch = read_batch(bytes(data))
            events = events_of(batch)
        except BatchCorrupt:
            whole = False
            continue
        clustered = clustered or bool(found.attributes & CONTROL)
        whole = whole and found.base_offset == expected
        expected = found.next_offset
        batches.append(bytes(data))
        for event in events:
            state.apply(event)
            if isinstance(event, StreamDeleted):
                deleted.add(UUID(event.id))
    whole = whole and expected >= log.end_offset
    return MetadataNames(state, deleted, batches, whole, clustered or bool(state.cluster_id))


def _snapshot(files: FileSystem) -> tuple[ControllerState, int]:
    """The state of the newest sound snapshot, and its end offset."""
    if not files.exists(QUORUM_DIRECTORY):
        return ControllerState(), 0
    found = SnapshotFiles(files).newest_sound().snapshot
    return (ControllerState(), 0) if found is None else (decode_snapshot(found.state), found.end.offset)
