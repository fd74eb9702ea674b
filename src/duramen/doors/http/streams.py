"""Streams as the HTTP door shows them."""

from collections.abc import Mapping
from typing import Final

from duramen.base.settings import config_text
from duramen.broker.gaps import Gaps, GapsOf
from duramen.broker.streams import Stream
from duramen.controller.decisions import wide_subjects
from duramen.doors.http.types import GapInfo, NatsGaps, PartitionInfo, StreamInfo

__all__ = ["config_texts", "describe", "warnings_for"]

_MEANS: Final = {
    "sync": "acknowledged records are on disk, covered by an fdatasync that began after they were written",
    "os": "acknowledged records are in the operating system's hands: a crash of the process loses none,"
    " a power failure may lose those not synced yet",
    "memory": "records are in bounded memory only; nothing survives a restart",
}


def config_texts(config: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Config values as text, however JSON had them."""
    return {name: config_text(value) for name, value in config.items()}


def describe(stream: Stream, gaps: Gaps) -> StreamInfo:
    """A stream with its partitions and the gaps in what NATS brought it."""
    durability = stream.config.text("durability")
    return StreamInfo(
        stream.name,
        str(stream.id),
        stream.internal,
        stream.state.created_at_ms,
        list(stream.subjects),
        durability,
        _MEANS[durability],
        dict(stream.state.config),
        [
            PartitionInfo(
                partition.index,
                partition.leader_epoch,
                partition.log.start_offset,
                partition.log.high_watermark,
                partition.log.end_offset,
                partition.log.size_bytes(),
                sum(1 for segment in partition.log.segments if segment.size),
            )
            for partition in stream.partitions
        ],
        _gaps(gaps.of(stream)) if stream.subjects else None,
    )


def _gaps(gaps: GapsOf) -> NatsGaps:
    recent = [GapInfo(*gap) for gap in gaps.recent]
    if gaps.open is not None:
        recent.append(GapInfo(gaps.open.start_ms, None, gaps.open.cause))
    return NatsGaps(gaps.gaps, gaps.total_ms, recent)


def warnings_for(stream: Stream) -> list[str]:
    """What somebody who creates this stream should know."""
    wide = wide_subjects(stream.subjects)
    if not wide or stream.config.text("nats.ack") == "never":
        return []
    return [
        f"the binding {subject} matches requests to other services too: Duramen answers on their reply subjects,"
        " unless nats.ack=never" for subject in wide
    ]  # fmt: skip
