"""Requests between nodes about share groups, and their responses."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.delivery.spans import DeliveryPhase
from duramen.delivery.window import State
from duramen.groups.share_records import ShareKey, ShareState
from duramen.rpc.errors import Refused
from duramen.rpc.methods import Method

__all__ = [
    "CHANGE_STATES",
    "DROP",
    "LOCATE",
    "READ_STATE",
    "WRITE_STATE",
    "ChangeStates",
    "Drop",
    "Key",
    "Locate",
    "Located",
    "Place",
    "ReadState",
    "StateChange",
    "StatesChanged",
    "Update",
    "Was",
    "WriteState",
    "key_of",
    "share_key",
    "states_of",
]

_KEPT: Final = (DeliveryPhase.AVAILABLE, DeliveryPhase.ACKNOWLEDGED, DeliveryPhase.ARCHIVED)
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Offset = Annotated[int, msgspec.Meta(ge=-1)]
_Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]

Key = tuple[str, _Id, _Count]
"""A share partition: group, stream id, partition."""

_Spoken = tuple[_Count, _Count, _Count, _Count]
Update = tuple[_Offset, tuple[_Spoken, ...]]
"""A start (-1: unchanged), and ranges of offsets with their phase and number of deliveries."""

Place = tuple[int, int, int] | None
"""Start offset, leader epoch and lag; None if the group has no state for the partition, or it is unknown."""


class StateChange(StrEnum):
    """The kinds of changes of states."""

    BEGIN = "begin"
    BEGIN_ANEW = "begin-anew"
    FORGET = "forget"


class ReadState(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """A partition's leader in that epoch reads the state from its keeper; older leaders cannot write from then on."""

    key: Key
    leader_epoch: int


class WriteState(msgspec.Struct, frozen=True, array_like=True, tag="write"):
    """A partition's leader changes a state that it has read. `sequence` increases with each change, not with retries.

    The request is for the leader of the state's partition in `keeper_epoch`.
    """

    key: Key
    keeper_epoch: int
    state_epoch: _Count
    leader_epoch: int
    sequence: _Count
    updates: tuple[Update, ...]


class ChangeStates(msgspec.Struct, frozen=True, array_like=True, tag="change"):
    """A group's coordinator changes states of one partition: each with its start (-1: not yet) and leader epoch.

    A creation leaves existing states as they are. The request is for the leader of their partition in `keeper_epoch`;
    the groups are coordinated in `coordinator_epoch`.
    """

    change: StateChange
    keeper_epoch: int
    coordinator_epoch: int
    states: tuple[tuple[Key, _Offset, int], ...]


class Locate(msgspec.Struct, frozen=True, array_like=True, tag="locate"):
    """Ask the leader of partitions for a group's offsets in them."""

    keys: tuple[Key, ...]


class Drop(msgspec.Struct, frozen=True, array_like=True, tag="drop"):
    """Ask the leader of partitions to drop changed states from its memory."""

    keys: tuple[Key, ...]


class Was(msgspec.Struct, frozen=True, array_like=True, tag="was"):
    """The stored state of a share partition."""

    start_offset: _Offset
    states: tuple[_Spoken, ...]
    state_epoch: _Count
    leader_epoch: int

    @classmethod
    def of(cls, state: ShareState) -> "Was":
        """The state, encoded for another node."""
        return cls(
            state.start_offset,
            tuple((one.first, one.last, int(one.phase), one.deliveries) for one in state.states),
            state.state_epoch,
            state.leader_epoch,
        )

    def state(self) -> ShareState:
        """The state, as far as the delivering leader needs it. Raises RequestInvalid."""
        return ShareState(self.start_offset, states_of(self.states), 0, self.state_epoch, self.leader_epoch)


class StatesChanged(msgspec.Struct, frozen=True, array_like=True, tag="changed"):
    """The changes are durable."""


class Located(msgspec.Struct, frozen=True, array_like=True, tag="located"):
    """The group's offset in each requested partition, and the errors of the unknown ones."""

    places: tuple[Place, ...]
    refused: tuple[Refused | None, ...]


READ_STATE: Final = Method("read-share-state", ReadState, Was, idempotent=True)
WRITE_STATE: Final = Method("write-share-state", WriteState, StatesChanged, idempotent=True)
CHANGE_STATES: Final = Method("change-share-states", ChangeStates, StatesChanged, idempotent=True)
LOCATE: Final = Method("locate-share-groups", Locate, Located, idempotent=True)
DROP: Final = Method("drop-share-states", Drop, StatesChanged, idempotent=True)


def key_of(key: ShareKey) -> Key:
    """The key of a share partition in requests."""
    return key.group, key.topic_id.bytes, key.partition


def share_key(key: Key) -> ShareKey:
    """The share partition of a key in requests."""
    group, topic_id, partition = key
    return ShareKey(group, UUID(bytes=topic_id), partition)


def states_of(spoken: tuple[_Spoken, ...]) -> tuple[State, ...]:
    """The states of ranges. Raises RequestInvalid for a phase that is never stored."""
    found = []
    for first, last, phase, deliveries in spoken:
        if phase not in _KEPT or first > last:
            raise RequestInvalid(f"positions {first} to {last} cannot be in phase {phase}")
        found.append(State(first, last, DeliveryPhase(phase), deliveries))
    return tuple(found)
