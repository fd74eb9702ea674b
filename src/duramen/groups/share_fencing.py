"""Fencing of changes to a share partition's state, by leader epoch and state epoch (KIP-932). Pure.

The partition's leader changes the group's state, with its leader epoch and the state epoch that it knows. Once a newer
leader has read the state, or an operator has reset it, changes of an older leader are refused.
"""

from typing import Final, NamedTuple

from duramen.base.errors import FencedLeaderEpoch, ShareGroupUnknown

__all__ = ["ANYBODY", "StateFence", "begun_anew", "forgotten", "read_by", "written_by"]

ANYBODY: Final = -1
"""The leader epoch of a reader that does not lead."""

_NONE: Final = -1


class StateFence(NamedTuple):
    """The state that was appended last, durable or not. If it is not `there`, only the epochs count.

    `sequence` is that of the last change in the leader epoch; `updates` have come since the snapshot.
    """

    there: bool = False
    state_epoch: int = 0
    leader_epoch: int = ANYBODY
    sequence: int = _NONE
    snapshot_epoch: int = 0
    updates: int = 0


def _check(fence: StateFence, leader_epoch: int) -> None:
    if not fence.there:
        raise ShareGroupUnknown("the group has no stored state for this partition")
    if leader_epoch < fence.leader_epoch:
        raise FencedLeaderEpoch(f"the leader of epoch {fence.leader_epoch} has read the state, after {leader_epoch}")


def read_by(fence: StateFence, leader_epoch: int) -> StateFence:
    """The fence behind a leader of that epoch that reads the state. Raises ShareGroupUnknown, FencedLeaderEpoch."""
    _check(fence, fence.leader_epoch if leader_epoch == ANYBODY else leader_epoch)
    if leader_epoch <= fence.leader_epoch:
        return fence
    return fence._replace(leader_epoch=leader_epoch, sequence=_NONE)


def written_by(fence: StateFence, state_epoch: int, leader_epoch: int, sequence: int, updates: int) -> StateFence:
    """The fence behind `updates` of a leader. The change of a sequence may come again, until the next one has come.

    Raises ShareGroupUnknown; FencedLeaderEpoch for an older leader, an older state and an older change.
    """
    _check(fence, leader_epoch)
    if state_epoch != fence.state_epoch:
        raise FencedLeaderEpoch(f"the state was reset: it is in epoch {fence.state_epoch}, not {state_epoch}")
    if leader_epoch == fence.leader_epoch and sequence < fence.sequence:
        raise FencedLeaderEpoch(f"change {sequence} comes after change {fence.sequence}")
    return fence._replace(leader_epoch=leader_epoch, sequence=sequence, updates=fence.updates + updates)


def begun_anew(fence: StateFence, leader_epoch: int) -> StateFence:
    """The fence after a reset: earlier readers of the state cannot change it any more."""
    return StateFence(
        True, fence.state_epoch + 1 if fence.there else 0, max(leader_epoch, fence.leader_epoch), _NONE,
        fence.snapshot_epoch + 1 if fence.there else 0,
    )  # fmt: skip


def forgotten(fence: StateFence) -> StateFence:
    """The fence behind the end of a state."""
    return fence._replace(there=False)
