"""Members of the classic protocol in a group of the consumer protocol, during a migration (KIP-848).

JoinGroup carries a member's subscription and owned partitions, and advances its reconciliation by a step; SyncGroup
returns its usable partitions; Heartbeat tells it to rejoin if it has partitions to revoke or to receive. No member
waits and none leads: the broker assigns, and each member continues at its own pace.
"""

from typing import Final

from duramen.base.errors import (
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    RequestInvalid,
    UnknownMember,
)
from duramen.codec.kafka.membership import ConsumerSubscription, encode_assignment, read_subscription
from duramen.groups.consumer_group import ConsumerGroupMachine
from duramen.groups.consumer_values import JOIN_EPOCH, ClassicSide, ConsumerMember, MemberState
from duramen.groups.topics import TopicCatalogue, TopicPartition
from duramen.groups.values import JoinRequest, JoinResult, SyncRequest, SyncResult

__all__ = [
    "CONSUMERS",
    "heartbeat",
    "join",
    "leave",
    "names_of",
    "places_of",
    "subscription_of",
    "sync",
    "topics_wanted",
]

CONSUMERS: Final = "consumer"
"""The protocol type whose members' subscriptions and assignments the broker can read."""


def subscription_of(protocols: tuple[tuple[str, bytes], ...]) -> ConsumerSubscription:
    """The subscription of a consumer: the same under each of its protocols. Raises InconsistentProtocol."""
    try:
        return read_subscription(protocols[0][1])
    except (IndexError, RequestInvalid) as error:
        raise InconsistentProtocol(f"the subscription of a consumer cannot be read: {error}") from None


def topics_wanted(request: JoinRequest) -> frozenset[str]:
    """The topics of a joining member's subscription; none if it cannot be decoded."""
    try:
        return subscription_of(tuple((name, bytes(metadata)) for name, metadata in request.protocols)).topics
    except InconsistentProtocol:
        return frozenset()


def places_of(topics: TopicCatalogue, partitions: dict[str, list[int]]) -> frozenset[TopicPartition]:
    """Partitions by the ids of their topics; of those that are gone there are none."""
    found = {name: topics.find(name) for name in partitions}
    return frozenset(
        (topic.id, index) for name, topic in found.items() if topic is not None for index in partitions[name]
    )


def names_of(topics: TopicCatalogue, places: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by the names of their topics; of those that are gone there are none."""
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(places):
        name = topics.name_of(topic_id)
        if name is not None:
            found.setdefault(name, []).append(index)
    return found


def join(group: ConsumerGroupMachine, request: JoinRequest, now_ms: int) -> JoinResult:
    """A member joins or joins again.

    Raises InconsistentProtocol, GroupFull, MemberIdRequired, UnknownMember, FencedInstance; nothing is changed then.
    """
    protocols = tuple((name, bytes(metadata)) for name, metadata in request.protocols)
    _check_protocols(group, request, protocols)
    group.check_room(request.member_id, request.instance_id)
    if request.instance_id is None and not request.member_id and request.id_required:
        raise MemberIdRequired(request.new_member_id)
    wanted = subscription_of(protocols)
    before = _subscribe(group, request)
    group.change(
        before._replace(
            instance_id=request.instance_id,
            rack_id=wanted.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=wanted.topics,
            pattern=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicSide(request.session_timeout_ms, protocols),
        )
    )
    owned = places_of(group.topics, {name: list(indexes) for name, indexes in wanted.owned.items()})
    member = group.lead(group.member(before.id), owned, now_ms)
    group.touch(member, now_ms)
    group.follow_by_ms[member.id] = now_ms + max(0, request.rebalance_timeout_ms)
    return JoinResult(member.epoch, CONSUMERS, protocols[0][0], "", member.id, ())


def _check_protocols(
    group: ConsumerGroupMachine, request: JoinRequest, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    if request.protocol_type != CONSUMERS:
        raise InconsistentProtocol(f"group {group.id} is one of consumers, not of {request.protocol_type}")
    others = [
        {name for name, _ in member.classic.protocols}
        for member in group.table.members.values()
        if member.classic is not None
        and member.id != request.member_id
        and (member.instance_id is None or member.instance_id != request.instance_id)
    ]
    common = set.intersection(*others) if others else set()
    if others and not common & {name for name, _ in protocols}:
        raise InconsistentProtocol(f"group {group.id} has the protocols {', '.join(sorted(common))}")


def _subscribe(group: ConsumerGroupMachine, request: JoinRequest) -> ConsumerMember:
    """The member that the request is from: as it is known, or new."""
    if request.instance_id is None:
        member_id = request.member_id or request.new_member_id
        return group.table.members.get(member_id) or ConsumerMember(member_id)
    static = group.table.static(request.instance_id)
    if request.member_id:
        group.check_static(static, request.member_id, request.instance_id)
        return group.member(request.member_id)
    if static is None:
        return ConsumerMember(request.new_member_id)
    return group.replace_static(static, request.new_member_id, JOIN_EPOCH)


def _classic(group: ConsumerGroupMachine, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    if instance_id is not None:
        group.check_static(group.table.static(instance_id), member_id, instance_id)
    member = group.member(member_id)
    if member.classic is None:
        raise UnknownMember(f"member {member_id} uses the consumer protocol")
    if generation != member.epoch:
        raise IllegalGeneration(f"member {member_id} is in generation {member.epoch}, not {generation}")
    return member


def sync(group: ConsumerGroupMachine, request: SyncRequest, now_ms: int) -> SyncResult:
    """The partitions that the member may read now.

    Raises UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol, RebalanceInProgress.
    """
    member = _classic(group, request.member_id, request.instance_id, request.generation)
    protocol = "" if member.classic is None else member.classic.protocols[0][0]
    if request.protocol_type not in (None, CONSUMERS) or request.protocol not in (None, protocol):
        raise InconsistentProtocol(f"member {member.id} uses {CONSUMERS} with {protocol}")
    if member.epoch < group.table.target_epoch and member.state is not MemberState.UNREVOKED:
        _call(group, member, now_ms)
    group.follow_by_ms.pop(member.id, None)
    group.touch(member, now_ms)
    return SyncResult(CONSUMERS, protocol, encode_assignment(names_of(group.topics, member.assigned)))


def heartbeat(
    group: ConsumerGroupMachine, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> None:
    """A heartbeat. Raises the error that the member gets: RebalanceInProgress makes it join again."""
    member = _classic(group, member_id, instance_id, generation)
    group.touch(member, now_ms)
    group.move_on(changed=False)
    behind = member.epoch < group.table.target_epoch or member.state is MemberState.UNREVOKED
    if behind or (member.state is MemberState.UNRELEASED and not _waits_for_others(group, member)):
        _call(group, member, now_ms)


def _waits_for_others(group: ConsumerGroupMachine, member: ConsumerMember) -> bool:
    missing = group.table.target_of(member.id) - member.assigned
    return any(group.table.owner(place) not in (None, member.id) for place in missing)


def _call(group: ConsumerGroupMachine, member: ConsumerMember, now_ms: int) -> None:
    """Call a member to join again; it is given up if it does not in its time."""
    group.follow_by_ms.setdefault(member.id, now_ms + max(0, member.rebalance_timeout_ms))
    raise RebalanceInProgress(f"group {group.id} has another assignment for {member.id}: it must join again")


def leave(group: ConsumerGroupMachine, member_id: str, instance_id: str | None) -> None:
    """A member goes. Raises UnknownMember or FencedInstance."""
    if instance_id is not None:
        static = group.table.static(instance_id)
        member_id = member_id or ("" if static is None else static.id)
        group.check_static(static, member_id, instance_id)
    group.fence([group.member(member_id).id])
