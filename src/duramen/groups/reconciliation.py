"""One member's step towards its target: partitions that it may use now, and those to revoke first. Pure (KIP-848).

A member gets a partition only once no other member has it, and reaches the target's epoch only once it has revoked
every other partition: so no two members ever hold the same partition.
"""

from collections.abc import Callable

from duramen.groups.consumer_values import ConsumerMember, MemberState
from duramen.groups.topics import TopicPartition

__all__ = ["reconcile"]


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: frozenset[TopicPartition],
    owned: frozenset[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> ConsumerMember:
    """The member after this heartbeat; the same object if nothing changes.

    `owned` is the member's list of its partitions, None if it sends none. `is_free` tells whether no other member has a
    partition.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _holds(owned, member.revoking):
        return member
    return _next(member.having_revoked(), target_epoch, target, owned, is_free)


def _holds(owned: frozenset[TopicPartition] | None, revoking: frozenset[TopicPartition]) -> bool:
    """Whether the member may still use partitions that it has to revoke: it has to confirm the revocation."""
    return owned is None or not owned.isdisjoint(revoking)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: frozenset[TopicPartition],
    owned: frozenset[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> ConsumerMember:
    kept = member.assigned & target
    revoking = member.assigned - target
    if revoking and _holds(owned, revoking):
        return member.at_epoch(member.epoch)._replace(state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    wanted = target - kept
    free = frozenset(place for place in wanted if is_free(place))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    since = {place: member.since.get(place, member.epoch) for place in kept} | dict.fromkeys(free, target_epoch)
    return member.at_epoch(target_epoch)._replace(state=state, assigned=kept | free, revoking=frozenset(), since=since)
