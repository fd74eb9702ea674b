"""Records of `__share_group_state`, byte for byte as Apache Kafka's, so that its tools can read them.

    key    int16 type, 0: snapshot, 1: update; string group, uuid topic, int32 partition
    value  int16 version 0, then a flexible message; the tables below have its fields

A snapshot is the whole state of a share partition, an update what has changed since the one before it. A snapshot
without a value ends the share partition. Delivery states: 0 available, 2 acknowledged, 4 archived.
https://cwiki.apache.org/confluence/x/CIq3FQ (KIP-932)
"""

import base64
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.errors import BatchCorrupt, RequestInvalid
from duramen.codec.kafka.schema import Schema
from duramen.delivery.spans import DeliveryPhase
from duramen.delivery.window import State, overlaid
from duramen.groups.records import partition_for

__all__ = [
    "UNKNOWN_START",
    "ShareKey",
    "ShareState",
    "ShareUpdate",
    "decode_key",
    "decode_snapshot",
    "decode_update",
    "encode_key",
    "encode_snapshot",
    "encode_update",
    "merged",
    "state_partition_for",
]

UNKNOWN_START: Final = -1
"""The start of a share partition from which nothing was read yet."""

_VERSION: Final = b"\0\0"
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_SNAPSHOT_TYPE: Final = 0
_UPDATE_TYPE: Final = 1
_PHASES: Final = {
    phase.value: phase for phase in (DeliveryPhase.AVAILABLE, DeliveryPhase.ACKNOWLEDGED, DeliveryPhase.ARCHIVED)
}

_BATCHES: Final = """
    state_batches []
      first_offset int64
      last_offset int64
      delivery_state int8
      delivery_count int16
"""
_SNAPSHOT: Final = Schema(
    "ShareSnapshot",
    0,
    """
    snapshot_epoch int32
    state_epoch int32
    leader_epoch int32
    start_offset int64
    delivery_complete_count int32 tag 0 = -1
    create_timestamp int64
    write_timestamp int64
    """
    + _BATCHES,
)
_UPDATE: Final = Schema(
    "ShareUpdate",
    0,
    """
    snapshot_epoch int32
    leader_epoch int32
    start_offset int64
    delivery_complete_count int32 tag 0 = -1
    """
    + _BATCHES,
)


class ShareKey(NamedTuple):
    """A share partition: the state of a partition for a group."""

    group: str
    topic_id: UUID
    partition: int


class ShareState(NamedTuple):
    """All that is kept of a share partition. `snapshot_epoch` counts snapshots, `state_epoch` resets of the start.

    Times in ms since 1970.
    """

    start_offset: int = UNKNOWN_START
    states: tuple[State, ...] = ()
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    created_ms: int = 0
    written_ms: int = 0


class ShareUpdate(NamedTuple):
    """A change of a share partition; a `start_offset` of -1 means no change."""

    start_offset: int
    states: tuple[State, ...]
    snapshot_epoch: int
    leader_epoch: int


def state_partition_for(key: ShareKey, partitions: int) -> int:
    """The partition of `__share_group_state` that keeps a share partition, as Kafka chooses it."""
    return partition_for(f"{key.group}:{_kafka_text(key.topic_id)}:{key.partition}", partitions)


def _kafka_text(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def encode_key(key: ShareKey, *, update: bool = False) -> bytes:
    """The key's bytes."""
    group = key.group.encode()
    kind = _UPDATE_TYPE if update else _SNAPSHOT_TYPE
    head = _LENGTH.pack(kind) + _LENGTH.pack(len(group)) + group
    return head + key.topic_id.bytes + _PARTITION.pack(key.partition)


def decode_key(data: bytes) -> tuple[ShareKey, bool] | None:
    """The key in `data`, and whether it is an update's; None for a kind that is not known. Raises BatchCorrupt."""
    try:
        kind, length = struct.unpack_from(">hh", data)
        if kind not in (_SNAPSHOT_TYPE, _UPDATE_TYPE):
            return None
        if length < 0 or len(data) != 4 + length + 16 + 4:
            raise ValueError("its length does not fit")
        topic_id = UUID(bytes=data[4 + length : 20 + length])
        (partition,) = _PARTITION.unpack_from(data, 20 + length)
        return ShareKey(data[4 : 4 + length].decode(), topic_id, partition), kind == _UPDATE_TYPE
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"a key of __share_group_state is damaged: {error}") from None


def encode_snapshot(state: ShareState) -> bytes:
    """The value's bytes."""
    return _VERSION + _SNAPSHOT.encode(
        0,
        {
            "snapshot_epoch": state.snapshot_epoch,
            "state_epoch": state.state_epoch,
            "leader_epoch": state.leader_epoch,
            "start_offset": state.start_offset,
            "delivery_complete_count": _complete(state.states),
            "create_timestamp": state.created_ms,
            "write_timestamp": state.written_ms,
            "state_batches": _batches(state.states),
        },
    )


def decode_snapshot(data: bytes) -> ShareState:
    """The value in `data`. Raises BatchCorrupt."""
    found = _body(_SNAPSHOT, data)
    return ShareState(
        found["start_offset"], _states(found), found["snapshot_epoch"], found["state_epoch"], found["leader_epoch"],
        found["create_timestamp"], found["write_timestamp"],
    )  # fmt: skip


def encode_update(update: ShareUpdate) -> bytes:
    """The value's bytes."""
    return _VERSION + _UPDATE.encode(
        0,
        {
            "snapshot_epoch": update.snapshot_epoch,
            "leader_epoch": update.leader_epoch,
            "start_offset": update.start_offset,
            "state_batches": _batches(update.states),
        },
    )


def decode_update(data: bytes) -> ShareUpdate:
    """The value in `data`. Raises BatchCorrupt."""
    found = _body(_UPDATE, data)
    return ShareUpdate(found["start_offset"], _states(found), found["snapshot_epoch"], found["leader_epoch"])


def _body(schema: Schema, data: bytes) -> dict[str, Any]:
    if data[:2] != _VERSION:
        raise BatchCorrupt(f"a {schema.name} has a version that is not known")
    try:
        return schema.decode(0, data, len(_VERSION))
    except RequestInvalid as error:
        raise BatchCorrupt(f"a record of __share_group_state is damaged: {error}") from None


def _batches(states: Sequence[State]) -> list[dict[str, int]]:
    return [
        {"first_offset": first, "last_offset": last, "delivery_state": phase, "delivery_count": deliveries}
        for first, last, phase, deliveries in states
    ]


def _states(found: dict[str, Any]) -> tuple[State, ...]:
    states = []
    for batch in found["state_batches"]:
        first, last, phase = batch["first_offset"], batch["last_offset"], _PHASES.get(batch["delivery_state"])
        if phase is None or first > last:
            raise BatchCorrupt(f"a record of __share_group_state has an impossible state for {first} to {last}")
        states.append(State(first, last, phase, batch["delivery_count"]))
    return tuple(states)


def _complete(states: Sequence[State]) -> int:
    return sum(state.last - state.first + 1 for state in states if state.phase is not DeliveryPhase.AVAILABLE)


def merged(snapshot: ShareState, updates: Sequence[ShareUpdate]) -> ShareState:
    """The state after `updates` in their order; those of another snapshot do not count."""
    mine = [update for update in updates if update.snapshot_epoch == snapshot.snapshot_epoch]
    start = max([snapshot.start_offset, *(update.start_offset for update in mine)])
    leader_epoch = max([snapshot.leader_epoch, *(update.leader_epoch for update in mine)])
    states = overlaid([*snapshot.states, *(state for update in mine for state in update.states)])
    return snapshot._replace(
        start_offset=start,
        leader_epoch=leader_epoch,
        states=tuple(
            state._replace(first=max(state.first, start)) for state in states if state.last >= start
        ),
    )  # fmt: skip
