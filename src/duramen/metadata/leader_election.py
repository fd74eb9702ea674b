"""Elects the leader of a partition after a change of it or of its nodes: one rule for all causes. Pure.

The leader is elected from the in-sync set, otherwise from the eligible leader replicas of KIP-966; otherwise there is
none.

A replica is eligible if it left the in-sync set when fewer than `min.insync.replicas` stayed in it, or while there were
fewer: from then on the high watermark did not rise, so it has every acknowledged record. The set of eligible replicas
is cleared as soon as enough are in sync again. A fenced node is in no in-sync set: if it was the last one of a
partition it becomes eligible too, and the partition waits for it.

The leader epoch changes with the leader, and when a replica is added: the node may have had an earlier replica, and
reports about that one's disk may still be in transit to the leader.
"""

from typing import NamedTuple

import msgspec

from duramen.metadata.events import PartitionChanged
from duramen.metadata.nodes import Nodes
from duramen.metadata.partitions import PartitionId, PartitionState, difference, without
from duramen.metadata.stream_rules import ReplicationRules

__all__ = ["ElectionCache", "Settled", "change", "settle"]

_Members = tuple[int, ...]


class Settled(NamedTuple):
    """The result for a partition; `unclean`: its new leader may lack acknowledged records."""

    partition: PartitionState
    unclean: bool = False


def change(
    place: PartitionId,
    before: PartitionState,
    wanted: PartitionState,
    nodes: Nodes,
    rules: ReplicationRules,
    *,
    lost: int | None = None,
    blank: int | None = None,
) -> list[PartitionChanged]:
    """The event for the result of `settle`, if anything changes."""
    after, unclean = settle(before, wanted, nodes, rules, lost=lost, blank=blank)
    return [] if after is before else [difference(place, before, after, unclean=unclean)]


class ElectionCache:
    """The effect of nodes on many partitions: computed once for all partitions in the same situation.

    A node has tens of thousands, in few situations. Epochs do not belong to the situation.
    """

    __slots__ = ("_known", "_nodes")

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._known: dict[tuple[object, ...], Settled | None] = {}

    def change(
        self,
        place: PartitionId,
        before: PartitionState,
        rules: ReplicationRules,
        *,
        lost: int | None = None,
        blank: int | None = None,
    ) -> list[PartitionChanged]:
        """Like `change` of a partition whose wanted state is the present one."""
        stands = (
            before.replicas, before.isr, before.leader, before.elr, before.last_known_elr, before.adding,
            before.removing, rules, lost, blank,
        )  # fmt: skip
        if stands in self._known:
            settled = self._known[stands]
        else:
            first = settle(before, before, self._nodes, rules, lost=lost, blank=blank)
            settled = self._known[stands] = None if first.partition is before else first
        if settled is None:
            return []
        as_first, unclean = settled
        after = PartitionState(
            as_first.replicas,
            as_first.isr,
            as_first.leader,
            before.leader_epoch + (as_first.leader != before.leader),  # the wanted state is unchanged: none is added
            before.partition_epoch + 1,
            as_first.elr,
            as_first.last_known_elr,
            as_first.adding,
            as_first.removing,
        )
        return [difference(place, before, after, unclean=unclean)]


def settle(
    before: PartitionState,
    wanted: PartitionState,
    nodes: Nodes,
    rules: ReplicationRules,
    *,
    lost: int | None = None,
    blank: int | None = None,
) -> Settled:
    """The result for `before` if it is to be `wanted` (replicas, in-sync set, leader, reassignment), given these nodes.

    `wanted` is `before` if only nodes have changed. The node `lost` no longer has all that it held, the node `blank`
    has nothing. The result is `before` itself if nothing changes.
    """
    forgetful = (lost, blank)
    known = without(before.isr + before.elr, forgetful)
    isr, unclean = without(_present(wanted, nodes), forgetful), False
    if not isr:
        isr, unclean = _elected(before, wanted, known, nodes, rules)
    wanted = _moved(_with_isr(wanted, isr), rules)

    leader = wanted.leader if wanted.leader in wanted.isr else _first(wanted.isr, nodes)
    short = len(wanted.isr) < rules.least_in_sync(wanted) and not unclean
    elr = without(_within(wanted.replicas, known), wanted.isr) if short else ()
    last_known = _last_known(before, wanted, (*wanted.isr, *elr, blank), lost) if short else ()
    if (leader, elr, last_known) == (before.leader, before.elr, before.last_known_elr) and _is_same(before, wanted):
        return Settled(before)
    after = PartitionState(
        wanted.replicas,
        wanted.isr,
        leader,
        before.leader_epoch + (leader != before.leader or bool(without(wanted.replicas, before.replicas))),
        before.partition_epoch + 1,
        elr,
        last_known,
        wanted.adding,
        wanted.removing,
    )
    return Settled(after, unclean)


def _is_same(before: PartitionState, wanted: PartitionState) -> bool:
    return before is wanted or (before.replicas, before.isr, before.adding, before.removing) == (
        wanted.replicas,
        wanted.isr,
        wanted.adding,
        wanted.removing,
    )


def _with_isr(wanted: PartitionState, isr: _Members) -> PartitionState:
    return wanted if isr == wanted.isr else msgspec.structs.replace(wanted, isr=isr)


def _within(members: _Members, others: _Members) -> _Members:
    return tuple([member for member in members if member in others])


def _last_known(
    before: PartitionState, wanted: PartitionState, others: tuple[int | None, ...], lost: int | None
) -> _Members:
    """The replicas that returned without all their records: if no other is left, one of them has most."""
    known = before.last_known_elr
    if lost is not None and lost in (*before.isr, *before.elr):
        known = (*known, lost)
    return without(_within(wanted.replicas, known), others) if known else ()


def _present(wanted: PartitionState, nodes: Nodes) -> _Members:
    """The live in-sync replicas, in the order of the replicas; a draining one only if there is no other."""
    live = tuple([member for member in wanted.replicas if member in wanted.isr and member in nodes.live])
    return without(live, nodes.draining) or live


def _elected(
    before: PartitionState, wanted: PartitionState, known: _Members, nodes: Nodes, rules: ReplicationRules
) -> tuple[_Members, bool]:
    """The single in-sync replica after the loss of all others, and whether it may lack acknowledged records."""
    leader = _first(_within(wanted.replicas, known), nodes)
    if leader is not None or not rules.unclean:
        return (() if leader is None else (leader,)), False
    leader = _first((*_within(wanted.replicas, before.last_known_elr), *wanted.replicas), nodes)
    return (() if leader is None else (leader,)), leader is not None


def _moved(wanted: PartitionState, rules: ReplicationRules) -> PartitionState:
    """Complete a reassignment once all added replicas are in sync, and enough stay without the removed ones."""
    if not wanted.is_moving:
        return wanted
    complete = msgspec.structs.replace(
        wanted, replicas=wanted.target, isr=without(wanted.isr, wanted.removing), adding=(), removing=()
    )
    added = all(member in wanted.isr for member in wanted.adding)
    return complete if added and len(complete.isr) >= max(1, rules.least_in_sync(complete)) else wanted


def _first(members: _Members, nodes: Nodes) -> int | None:
    """The first live one; a draining one only if there is no other."""
    live = [member for member in members if member in nodes.live]
    return next((member for member in live if member not in nodes.draining), live[0] if live else None)
