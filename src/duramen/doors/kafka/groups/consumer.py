"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.codec.kafka.schema import Message
from duramen.coordinators.group.kinds import GroupKind
from duramen.coordinators.group.topics import GroupTopics
from duramen.doors.kafka.groups.descriptions import reply_descriptions
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.groups.consumer_group import ConsumerGroupMachine
from duramen.groups.consumer_values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeatResult,
    ConsumerMember,
    HeartbeatRequest,
)
from duramen.groups.topics import TopicPartition

__all__ = ["by_topic", "handle_consumer_group_describe", "handle_consumer_group_heartbeat"]

_CLIENT_MAKES_ID: Final = 1  # since this version members come with an id that they made themselves
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def handle_consumer_group_heartbeat(context: Context, exchange: Exchange) -> None:
    """A member joins, sends a heartbeat or leaves, and gets its assignment."""
    request = exchange.message()
    broker = context.broker
    leaves = request["member_epoch"] < JOIN_EPOCH

    def done(result: ConsumerHeartbeatResult | DuramenError) -> None:
        if isinstance(result, DuramenError):
            exchange.reply({"error_code": group_error_code(result), "error_message": str(result)})
            return
        assigned, config = result.assigned, broker.groups.consumer.config_of(request["group_id"])
        exchange.reply(
            {
                "member_id": result.member_id,
                "member_epoch": result.epoch,
                "heartbeat_interval_ms": 0 if leaves else config.heartbeat_interval_ms,
                "assignment": None if assigned is None else {"topic_partitions": by_topic(assigned)},
            }
        )

    try:
        _check(request, exchange.version)
    except DuramenError as error:
        done(error)
        return
    heartbeat = _heartbeat(context, exchange, request)
    # The stream of offsets may not be there yet if the client found the coordinator before a restart.
    broker.internal_streams.ensure_offsets(
        lambda error: (
            done(error) if error is not None else broker.groups.consumer_heartbeat(request["group_id"], heartbeat, done)
        )
    )


def _check(request: Message, version: int) -> None:
    """Raise RequestInvalid if a heartbeat lacks required fields or has invalid ones."""
    epoch = request["member_epoch"]
    if not request["group_id"]:
        raise RequestInvalid("a heartbeat names its group")
    for field in ("instance_id", "rack_id"):
        if request[field] == "":
            raise RequestInvalid(f"{field} is empty: leave it out, or say it")
    if not request["member_id"] and (version >= _CLIENT_MAKES_ID or epoch != JOIN_EPOCH):
        raise RequestInvalid("a heartbeat names its member")
    if epoch < STATIC_LEAVE_EPOCH:
        raise RequestInvalid(f"{epoch} is no member epoch")
    if epoch == STATIC_LEAVE_EPOCH and request["instance_id"] is None:
        raise RequestInvalid("only a static member leaves to come back: it names its instance id")
    if epoch == JOIN_EPOCH:
        if request["rebalance_timeout_ms"] == -1:
            raise RequestInvalid("a member that joins says its rebalance timeout")
        if request["topic_partitions"] is None or request["topic_partitions"]:
            raise RequestInvalid("a joining member must report that it owns no partitions")
        if request["subscribed_topic_names"] is None and request["subscribed_topic_regex"] is None:
            raise RequestInvalid("a joining member must state its subscription")


def _heartbeat(context: Context, exchange: Exchange, request: Message) -> HeartbeatRequest:
    client_id = exchange.header.client_id or ""
    names = request["subscribed_topic_names"]
    owned = request["topic_partitions"]
    return HeartbeatRequest(
        request["member_id"] or context.broker.groups.new_member_id(client_id),
        request["member_epoch"],
        request["instance_id"],
        request["rack_id"],
        client_id,
        exchange.client_host,
        request["rebalance_timeout_ms"],
        None if names is None else frozenset(names),
        request["subscribed_topic_regex"],
        request["server_assignor"],
        None if owned is None else _places(owned),
    )


def _places(topics: Sequence[Message]) -> frozenset[TopicPartition]:
    return frozenset((topic["topic_id"], index) for topic in topics for index in topic["partitions"])


def by_topic(places: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Partitions as a heartbeat's answer has them."""
    topics: dict[Any, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]


def handle_consumer_group_describe(context: Context, exchange: Exchange) -> None:
    """Groups of the consumer protocol with their members, assignments and targets."""
    groups = context.broker.groups

    def describe(group_id: str) -> Message:
        groups.check(group_id)
        groups.kinds.check(group_id, GroupKind.CONSUMER)
        return _described(groups.consumer.get(group_id), groups.consumer.topics)

    reply_descriptions(context, exchange, exchange.message()["group_ids"], describe)


def _described(group: ConsumerGroupMachine, topics: GroupTopics) -> Message:
    table = group.table
    return {
        "group_id": group.id,
        "group_state": group.state.value,
        "group_epoch": table.epoch,
        "assignment_epoch": table.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(group, member, topics) for member in table.members.values()],
    }


def _member(group: ConsumerGroupMachine, member: ConsumerMember, topics: GroupTopics) -> Message:
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.pattern or "",
        "assignment": {"topic_partitions": _named(member.assigned | member.revoking, topics)},
        "target_assignment": {"topic_partitions": _named(group.table.target_of(member.id), topics)},
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _named(places: Iterable[TopicPartition], topics: GroupTopics) -> list[dict[str, Any]]:
    """Partitions with the names of their topics; those of topics that are gone are left out."""
    return [
        topic | {"topic_name": name}
        for topic in by_topic(places)
        if (name := topics.name_of(topic["topic_id"])) is not None
    ]
