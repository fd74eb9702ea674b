"""Recreates streams for logs that are missing in the metadata log. Pure."""

from collections.abc import Collection, Mapping
from typing import Final

from duramen.base.ids import StreamId
from duramen.coordinators.group.offsets import OFFSETS_CONFIG, OFFSETS_STREAM
from duramen.metadata.decisions import PRODUCER_ID_BLOCK
from duramen.metadata.events import Event, PartitionsAdded, ProducerIdsAllocated, StreamCreated
from duramen.metadata.state import ControllerState

__all__ = ["recovered_name", "recreate"]

_KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


def recovered_name(stream_id: StreamId) -> str:
    """The name of a stream whose own is lost."""
    return f"recovered-{stream_id}"


def recreate(
    state: ControllerState,
    partitions: Mapping[StreamId, int],
    durabilities: Mapping[StreamId, str],
    offsets: Collection[StreamId],
    *,
    offsets_partitions: int,
    largest_producer_id: int,
    now_ms: int,
) -> list[Event]:
    """Events that give every stream in `partitions` at least that many, and prevent reuse of producer ids.

    A stream that `state` does not know gets a name made of its id and keeps its records without limit, because its
    config is lost too; one of `offsets` becomes the stream of consumer offsets, if there is none.
    """
    events: list[Event] = []
    offsets_known = OFFSETS_STREAM in state.streams
    for stream_id, count in sorted(partitions.items()):
        known = state.stream_by_id(stream_id)
        if known is not None and known.partitions < count:
            events.append(PartitionsAdded(str(stream_id), count))
        elif known is None and stream_id in offsets and not offsets_known:
            offsets_known = True
            size = max(count, offsets_partitions)
            created = StreamCreated(OFFSETS_STREAM, str(stream_id), size, OFFSETS_CONFIG, internal=True, at_ms=now_ms)
            events.append(created)
        elif known is None:
            config = {**_KEPT, "durability": durabilities[stream_id]}
            events.append(StreamCreated(recovered_name(stream_id), str(stream_id), count, config, at_ms=now_ms))
    # A block beyond those of which batches are left: ids may have been handed out that have not written yet.
    first = max(state.next_producer_id, largest_producer_id + 1)
    events.append(ProducerIdsAllocated(first, PRODUCER_ID_BLOCK))
    return events
