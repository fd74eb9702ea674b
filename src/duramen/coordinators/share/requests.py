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
"""A start (-1: the same), and positions from first to last with their phase and number of deliveries."""

Place = tuple[int, int, int] | None
"""Start offset, leader epoch and lag; None where the group has no share of the partition, or that is not known."""


class StateChange(StrEnum):
    """What becomes of states."""

    BEGIN = "begin"
    BEGIN_ANEW = "begin-anew"
    FORGET = "forget"


class ReadState(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """A partition's leader of that epoch asks the leader of the state's partition; no older one writes from then on."""

    key: Key
    leader_epoch: int


class WriteState(msgspec.Struct, frozen=True, array_like=True, tag="write"):
    """A partition's leader changes a state it has read. `sequence` rises with each change, not with repetitions.

    It is meant for who leads the state's partition in `keeper_epoch`.
    """

    key: Key
    keeper_epoch: int
    state_epoch: _Count
    leader_epoch: int
    sequence: _Count
    updates: tuple[Update, ...]


class ChangeStates(msgspec.Struct, frozen=True, array_like=True, tag="change"):
    """A group's coordinator changes states of one partition: each with where it begins (-1: not yet) and leader epoch.

    Those that are to begin and are there already stay as they are. It is meant for who leads their partition in
    `keeper_epoch`; the groups are coordinated in `coordinator_epoch`.
    """

    change: StateChange
    keeper_epoch: int
    coordinator_epoch: int
    states: tuple[tuple[Key, _Offset, int], ...]


class Locate(msgspec.Struct, frozen=True, array_like=True, tag="locate"):
    """The leader of partitions is asked where a group is in them."""

    keys: tuple[Key, ...]


class Drop(msgspec.Struct, frozen=True, array_like=True, tag="drop"):
    """The leader of partitions is to forget what it has in memory of states that have changed."""

    keys: tuple[Key, ...]


class Was(msgspec.Struct, frozen=True, array_like=True, tag="was"):
    """All that is kept of a share partition."""

    start_offset: _Offset
    states: tuple[_Spoken, ...]
    state_epoch: _Count
    leader_epoch: int

    @classmethod
    def of(cls, state: ShareState) -> "Was":
        """A state as another node is told of it."""
        return cls(
            state.start_offset,
            tuple((one.first, one.last, int(one.phase), one.deliveries) for one in state.states),
            state.state_epoch,
            state.leader_epoch,
        )

    def state(self) -> ShareState:
        """The state, as far as it matters to who delivers by it. Raises RequestInvalid."""
        return ShareState(self.start_offset, states_of(self.states), 0, self.state_epoch, self.leader_epoch)


class StatesChanged(msgspec.Struct, frozen=True, array_like=True, tag="changed"):
    """It is so, durably."""


class Located(msgspec.Struct, frozen=True, array_like=True, tag="located"):
    """Where a group is in each partition that was asked for, and why that is not known where it is not."""

    places: tuple[Place, ...]
    refused: tuple[Refused | None, ...]


READ_STATE: Final = Method("read-share-state", ReadState, Was, idempotent=True)
WRITE_STATE: Final = Method("write-share-state", WriteState, StatesChanged, idempotent=True)
CHANGE_STATES: Final = Method("change-share-states", ChangeStates, StatesChanged, idempotent=True)
LOCATE: Final = Method("locate-share-groups", Locate, Located, idempotent=True)
DROP: Final = Method("drop-share-states", Drop, StatesChanged, idempotent=True)


def key_of(key: ShareKey) -> Key:
    """A share partition as nodes name it."""
    return key.group, key.topic_id.bytes, key.partition


def share_key(key: Key) -> ShareKey:
    """The share partition that nodes name so."""
    group, topic_id, partition = key
    return ShareKey(group, UUID(bytes=topic_id), partition)


def states_of(spoken: tuple[_Spoken, ...]) -> tuple[State, ...]:
    """The states of positions. Raises RequestInvalid for one that is never kept."""
    found = []
    for first, last, phase, deliveries in spoken:
        if phase not in _KEPT or first > last:
            raise RequestInvalid(f"positions {first} to {last} cannot be in phase {phase}")
        found.append(State(first, last, DeliveryPhase(phase), deliveries))
    return tuple(found)
