"""Consumer groups: FindCoordinator, the classic protocol, offsets, and their administration."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from duramen.base.errors import DuramenError, GroupNotFound, MemberIdRequired
from duramen.broker.coordinator import CommitMember, Leaving
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import group_error_code
from duramen.doors.kafka.exchange import Exchange
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import GroupState, JoinRequest, JoinResult, SyncRequest, SyncResult

__all__ = [
    "handle_delete_groups",
    "handle_describe_groups",
    "handle_find_coordinator",
    "handle_heartbeat",
    "handle_join_group",
    "handle_leave_group",
    "handle_list_groups",
    "handle_offset_commit",
    "handle_offset_fetch",
    "handle_sync_group",
]

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SHARE_KEY: Final = 2


def handle_find_coordinator(context: Context, exchange: Exchange) -> None:
    """Which node coordinates a group or a transactional id: this one, once there is somewhere to store it."""
    request = exchange.message()
    keys = request["coordinator_keys"] if exchange.version >= 4 else [request["key"]]
    broker = context.broker

    def reply(error: DuramenError | None) -> None:
        code, message = group_error_code(error), None if error is None else str(error)
        if request["key_type"] not in (_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY):
            code, message = ErrorCode.INVALID_REQUEST, f"there are no coordinators of the type {request['key_type']}"
        found: dict[str, Any] = {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}
        if code is ErrorCode.NONE:
            found |= {"node_id": broker.node_id, "host": context.host, "port": context.port}
        exchange.reply(found | {"coordinators": [found | {"key": key} for key in keys]})

    if request["key_type"] == _TRANSACTION_KEY:
        broker.ensure_transactions_stream(reply)
    elif request["key_type"] == _GROUP_KEY:
        broker.ensure_offsets_stream(reply)
    elif request["key_type"] == _SHARE_KEY:
        broker.ensure_share_stream(reply)
    else:
        reply(None)


# -- membership ---------------------------------------------------------------------------------------


def handle_join_group(context: Context, exchange: Exchange) -> None:
    """A member joins; answered when the rebalance is complete."""
    request = exchange.message()
    client_id = exchange.header.client_id or ""
    instance_id = request["group_instance_id"]
    join = JoinRequest(
        request["member_id"],
        instance_id,
        context.broker.groups.new_member_id(instance_id or client_id),
        exchange.version >= 4,
        client_id,
        exchange.client_host,
        request["session_timeout_ms"],
        request["rebalance_timeout_ms"] if exchange.version >= 1 else request["session_timeout_ms"],
        request["protocol_type"],
        [(protocol["name"], protocol["metadata"]) for protocol in request["protocols"]],
        exchange.version >= 9,
    )

    def done(result: JoinResult | SyncResult | DuramenError) -> None:
        if isinstance(result, JoinResult):
            exchange.reply(
                {
                    "generation_id": result.generation,
                    "protocol_type": result.protocol_type,
                    "protocol_name": result.protocol,
                    "leader": result.leader_id,
                    "skip_assignment": result.skip_assignment,
                    "member_id": result.member_id,
                    "members": [
                        {
                            "member_id": member.member_id,
                            "group_instance_id": member.instance_id,
                            "metadata": member.metadata,
                        }
                        for member in result.members
                    ],
                }
            )
        else:
            exchange.reply(_join_error(exchange, request["member_id"], result))

    # The stream of offsets may not be there yet if the client found the coordinator before a restart.
    context.broker.ensure_offsets_stream(
        lambda error: done(error) if error is not None else context.broker.groups.join(request["group_id"], join, done)
    )


def _join_error(exchange: Exchange, member_id: str, error: object) -> Message:
    if isinstance(error, MemberIdRequired):
        member_id = error.member_id
    return {
        "error_code": group_error_code(error if isinstance(error, Exception) else None),
        "member_id": member_id,
        "protocol_name": None if exchange.version >= 7 else "",
    }


def handle_sync_group(context: Context, exchange: Exchange) -> None:
    """A member gets its assignment; the leader brings everybody's."""
    request = exchange.message()
    sync = SyncRequest(
        request["member_id"],
        request["group_instance_id"],
        request["generation_id"],
        request["protocol_type"],
        request["protocol_name"],
        [(assignment["member_id"], assignment["assignment"]) for assignment in request["assignments"]],
    )

    def done(result: JoinResult | SyncResult | DuramenError) -> None:
        if isinstance(result, SyncResult):
            exchange.reply(
                {
                    "protocol_type": result.protocol_type,
                    "protocol_name": result.protocol,
                    "assignment": result.assignment,
                }
            )
        else:
            exchange.reply({"error_code": group_error_code(result if isinstance(result, Exception) else None)})

    context.broker.groups.sync(request["group_id"], sync, done)


def handle_heartbeat(context: Context, exchange: Exchange) -> None:
    """A sign of life."""
    request = exchange.message()
    member = CommitMember(request["member_id"], request["group_instance_id"], request["generation_id"])
    context.broker.groups.heartbeat(
        request["group_id"], member, lambda error: exchange.reply({"error_code": group_error_code(error)})
    )


def handle_leave_group(context: Context, exchange: Exchange) -> None:
    """Members go."""
    request = exchange.message()
    if exchange.version >= 3:
        members = [Leaving(member["member_id"], member["group_instance_id"]) for member in request["members"]]
    else:
        members = [Leaving(request["member_id"], None)]

    def done(results: list[DuramenError | None] | DuramenError) -> None:
        if isinstance(results, DuramenError):
            exchange.reply({"error_code": group_error_code(results)})
            return
        answers = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "error_code": group_error_code(result),
            }
            for member, result in zip(members, results, strict=True)
        ]
        alone = group_error_code(results[0]) if exchange.version < 3 else ErrorCode.NONE
        exchange.reply({"error_code": alone, "members": answers})

    context.broker.groups.leave(request["group_id"], members, done)


# -- offsets ------------------------------------------------------------------------------------------


def handle_offset_commit(context: Context, exchange: Exchange) -> None:
    """Store offsets; answered once they are durable."""
    request = exchange.message()
    broker = context.broker
    group_id = request["group_id"]
    now_ms = broker.now_ms()
    offsets: list[tuple[OffsetKey, CommittedOffset]] = []
    topics: list[dict[str, Any]] = []
    stored: list[Message] = []
    for topic in request["topics"]:
        stream = broker.streams.find(topic["name"])
        answers = []
        for wanted in topic["partitions"]:
            index = wanted["partition_index"]
            answer: Message = {"partition_index": index, "error_code": ErrorCode.NONE}
            answers.append(answer)
            if stream is None or not 0 <= index < len(stream.partitions):
                answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            committed = CommittedOffset(
                wanted["committed_offset"], wanted["committed_leader_epoch"], wanted["committed_metadata"] or "", now_ms
            )
            offsets.append((OffsetKey(group_id, topic["name"], index), committed))
            stored.append(answer)
        topics.append({"name": topic["name"], "partitions": answers})

    def done(results: Sequence[DuramenError | None] | DuramenError) -> None:
        if isinstance(results, DuramenError):
            results = [results] * len(stored)
        for answer, result in zip(stored, results, strict=True):
            answer["error_code"] = group_error_code(result)
        exchange.reply({"topics": topics})

    member = CommitMember(request["member_id"], request["group_instance_id"], request["generation_id_or_member_epoch"])

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
        else:
            broker.groups.commit(group_id, member, offsets, done)

    broker.ensure_offsets_stream(ready)


def handle_offset_fetch(context: Context, exchange: Exchange) -> None:
    """What groups have committed."""
    request = exchange.message()
    stable = request["require_stable"] is True
    if exchange.version >= 8:
        groups = [
            {
                "group_id": group["group_id"],
                "topics": _committed(context, group["group_id"], group["topics"], stable=stable),
                "error_code": ErrorCode.NONE,
            }
            for group in request["groups"]
        ]
        exchange.reply({"groups": groups})
    else:
        exchange.reply({"topics": _committed(context, request["group_id"], request["topics"], stable=stable)})


def _committed(context: Context, group_id: str, topics: Sequence[Message] | None, *, stable: bool) -> list[Message]:
    """With `stable` an offset that a transaction may change still is not told (KIP-447)."""
    groups = context.broker.groups

    def answer(key: OffsetKey, committed: CommittedOffset | None) -> Message:
        if stable and groups.unstable(key):
            return {**_committed_offset(key.partition, None), "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return _committed_offset(key.partition, committed)

    by_topic: dict[str, list[Message]] = {}
    if topics is None:
        for key, committed in groups.all_committed(group_id):
            by_topic.setdefault(key.topic, []).append(answer(key, committed))
    else:
        for topic in topics:
            keys = [OffsetKey(group_id, topic["name"], index) for index in topic["partition_indexes"]]
            by_topic[topic["name"]] = [answer(key, groups.committed(key)) for key in keys]
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]


def _committed_offset(index: int, committed: CommittedOffset | None) -> Message:
    if committed is None:
        return {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


# -- administration -----------------------------------------------------------------------------------


def handle_list_groups(context: Context, exchange: Exchange) -> None:
    """Every group, or those in some states."""
    request = exchange.message()
    states = {state.lower() for state in request["states_filter"]}
    types = {type_.lower() for type_ in request["types_filter"]}
    exchange.reply(
        {
            "groups": [
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type,
                    "group_state": group.state.value,
                    "group_type": group.kind.value,
                }
                for group in context.broker.groups.listing()
                if (not states or group.state.value.lower() in states) and (not types or group.kind.value in types)
            ]
        }
    )


def handle_describe_groups(context: Context, exchange: Exchange) -> None:
    """Groups with their members; one that does not exist is dead."""
    groups = []
    for group_id in exchange.message()["groups"]:
        try:
            described = context.broker.groups.describe(group_id)
        except GroupNotFound:
            groups.append({"group_id": group_id, "group_state": GroupState.DEAD.value})
            continue
        snapshot = described.snapshot
        groups.append(
            {
                "group_id": group_id,
                "group_state": described.state.value,
                "protocol_type": snapshot.protocol_type,
                "protocol_data": snapshot.protocol or "",
                "members": [
                    {
                        "member_id": member.member_id,
                        "group_instance_id": member.instance_id,
                        "client_id": member.client_id,
                        "client_host": member.client_host,
                        "member_metadata": member.subscription,
                        "member_assignment": member.assignment,
                    }
                    for member in snapshot.members
                ],
            }
        )
    exchange.reply({"groups": groups})


def handle_delete_groups(context: Context, exchange: Exchange) -> None:
    """Remove groups without members, with their offsets."""
    names = exchange.message()["groups_names"]
    results: dict[int, Message] = {}

    def put(at: int) -> Callable[[DuramenError | None], None]:
        def done(error: DuramenError | None) -> None:
            results[at] = {"group_id": names[at], "error_code": group_error_code(error)}
            if len(results) == len(names):
                exchange.reply({"results": [results[index] for index in range(len(names))]})

        return done

    if not names:
        exchange.reply({"results": []})
    for at, name in enumerate(names):
        context.broker.groups.delete(name, put(at))
