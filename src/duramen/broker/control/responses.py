"""Responses of the active controller, as values that can be sent. Pure."""

from collections.abc import Callable
from uuid import UUID

import msgspec

from duramen.base.errors import DuramenError
from duramen.metadata.alter_partition import AlterPartitionRefusal
from duramen.metadata.partitions import PartitionState
from duramen.metadata.rebalance import ReplicaMove
from duramen.raft.description import ReplicaProgress
from duramen.raft.voters import Voter

__all__ = [
    "Answer",
    "Beaten",
    "Block",
    "Created",
    "Done",
    "Isr",
    "IsrAnswers",
    "Observed",
    "Outcome",
    "Planned",
    "Registered",
    "Stepped",
    "Value",
    "When",
]


class _Value(msgspec.Struct, frozen=True, tag_field="answer"):
    """Base of the responses."""


class Done(_Value, frozen=True):
    """Success without a value."""


class Registered(_Value, frozen=True):
    """The node is registered in this epoch; it is fenced until it has applied the log below that offset."""

    epoch: int


class Beaten(_Value, frozen=True):
    """The state of a node: fenced or not, `caught_up` with its own registration, and whether it may stop now."""

    fenced: bool
    caught_up: bool
    may_stop: bool = False


class Isr(msgspec.Struct, frozen=True):
    """The outcome of one proposal: the refusal, or the partition; `new_leader`: the leader has changed."""

    refusal: AlterPartitionRefusal | None = None
    partition: PartitionState | None = None
    new_leader: bool = False


class IsrAnswers(_Value, frozen=True):
    """The outcome of each proposal, in order."""

    answers: tuple[Isr, ...]


class Created(_Value, frozen=True):
    """The stream exists; `existed`: it existed before."""

    stream_id: UUID
    existed: bool = False


class Block(_Value, frozen=True):
    """A block of ids from `first` on, reserved for the requester."""

    first: int
    count: int


class Planned(_Value, frozen=True):
    """A plan: its moves."""

    moves: tuple[ReplicaMove, ...]


class Stepped(_Value, frozen=True):
    """The numbers of moves of a plan: done, in progress, not begun, void; or of moved leaders, as `done`."""

    done: int
    moving: int = 0
    waiting: int = 0
    void: int = 0


class Observed(_Value, frozen=True):
    """The quorum as its leader sees it, and how far each live node has applied the metadata log, by its id.

    Observers fetch and do not vote; `endpoints` is where the voters are reached.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]
    endpoints: tuple[Voter, ...]
    applied: dict[int, int] = {}


Value = Done | Registered | Beaten | IsrAnswers | Created | Block | Planned | Stepped | Observed


class Answer(msgspec.Struct, frozen=True):
    """The request is executed; nodes that have applied the metadata log up to `end_offset` know its effect."""

    value: Value
    end_offset: int


Outcome = Answer | DuramenError
When = Callable[[Outcome], None]
