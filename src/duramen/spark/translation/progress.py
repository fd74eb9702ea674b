"""Publishes the progress and the error of a stream's table as offsets of a consumer group.

So Kafka's tools and the node's metrics show a table's lag like that of any consumer, and `duramen table status` finds
the error from anywhere. It is write-only: the table alone determines its content.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from duramen.base.errors import DuramenError
from duramen.client import BrokerCluster, TopicPartition
from duramen.client.coordinator import GroupCoordinatorClient

__all__ = ["Note", "group_of", "leave", "look"]

_PREFIX: Final = "duramen-table-"
_LONGEST: Final = 1000  # characters of an error; a group's metadata has 4096 bytes


class Note(msgspec.Struct, frozen=True):
    """When the job last looked at the table, in ms since 1970, and its error; empty after a success."""

    at_ms: int
    error: str = ""


def group_of(stream: str) -> str:
    """The id of the consumer group of a stream's table."""
    return f"{_PREFIX}{stream}"


def leave(cluster: BrokerCluster, stream: str, ends: Mapping[int, int], note: Note) -> None:
    """Report that the table has everything before `ends`. Raises ServerUnreachable or the broker's error."""
    short = Note(note.at_ms, note.error[:_LONGEST])
    GroupCoordinatorClient(cluster, group_of(stream)).commit(
        {TopicPartition(stream, partition): end for partition, end in ends.items()},
        metadata=msgspec.json.encode(short).decode(),
    )


def look(cluster: BrokerCluster, stream: str, partitions: Mapping[int, object]) -> Note | None:
    """The newest note; None if there is none, or no broker responds."""
    try:
        found = GroupCoordinatorClient(cluster, group_of(stream)).metadata(
            TopicPartition(stream, one) for one in partitions
        )
    except DuramenError:
        return None
    notes = []
    for text in found.values():
        try:
            notes.append(msgspec.json.decode(text, type=Note))
        except msgspec.MsgspecError:
            continue
    return max(notes, key=lambda one: one.at_ms, default=None)
