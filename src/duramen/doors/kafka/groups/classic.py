"""FindCoordinator, and members of the classic protocol."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from duramen.base.errors import DuramenError, GroupFull, MemberIdRequired, UnknownMember
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.coordinators.group.coordinator import CommitMember, LeavingMember
from duramen.coordinators.group.kinds import GroupKind
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.share.state import SHARE_STATE_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.doors.kafka.request.brokers import coordinator_place
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.groups.records import partition_for
from duramen.groups.values import JoinRequest, JoinResult, SyncRequest, SyncResult
from duramen.service.authorize import CLUSTER_NAME, Access, Operation, ResourceType

__all__ = [
    "found_groups",
    "found_transactional_ids",
    "handle_find_coordinator",
    "handle_heartbeat",
    "handle_join_group",
    "handle_leave_group",
    "handle_sync_group",
]

_SEVERAL_LEAVE: Final = 3  # since this version LeaveGroup names members, each of which is answered
_NAMES_PROTOCOL: Final = 5  # since this version SyncGroup names its protocol
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SHARE_KEY: Final = 2

_STORED: Final[Mapping[int, tuple[str, Callable[[str, int], int]]]] = {
    _GROUP_KEY: (OFFSETS_STREAM, partition_for),
    _TRANSACTION_KEY: (TRANSACTIONS_STREAM, transaction_partition),
    _SHARE_KEY: (SHARE_STATE_STREAM, partition_for),
}
"""The storage of a kind of coordinator: the stream, and the partition for a key."""


_ACCESS: Final[Mapping[int, Access]] = {
    _GROUP_KEY: Access(Operation.DESCRIBE, ResourceType.GROUP),
    _TRANSACTION_KEY: Access(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    _SHARE_KEY: Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
}
"""The operation that the client must be allowed."""


def _keys(exchange: Exchange) -> Sequence[str]:
    request = exchange.message()
    keys: Sequence[str] = request["coordinator_keys"] if exchange.version >= 4 else [request["key"]]
    return keys


def found_groups(needs: ApiNeeds) -> Sequence[str]:
    """The groups in the request."""
    return _keys(needs.exchange) if needs.request["key_type"] == _GROUP_KEY else ()


def found_transactional_ids(needs: ApiNeeds) -> Sequence[str]:
    """The transactional ids in the request."""
    return _keys(needs.exchange) if needs.request["key_type"] == _TRANSACTION_KEY else ()


def handle_find_coordinator(context: Context, exchange: Exchange) -> None:
    """The coordinator of a group or transactional id: the leader of the partition that stores it."""
    request = exchange.message()
    keys = _keys(exchange)
    broker, admitted = context.broker, exchange.admitted

    def reply(error: DuramenError | None) -> None:
        code, message = group_error_code(error), None if error is None else str(error)
        if request["key_type"] not in (_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY):
            code, message = ErrorCode.INVALID_REQUEST, f"there are no coordinators of the type {request['key_type']}"
        refused: dict[str, Any] = {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}
        found = [told(key) if not code else refused for key in keys]
        coordinators = [one | {"key": key} for one, key in zip(found, keys, strict=True)]
        exchange.reply((found[0] if found else refused) | {"coordinators": coordinators})

    def refusal(key: str) -> DuramenError | None:
        access = _ACCESS[request["key_type"]]
        return admitted.refusal(access, CLUSTER_NAME if access.resource_type is ResourceType.CLUSTER else key)

    def told(key: str) -> dict[str, Any]:
        error = refusal(key)
        if error is None:
            return _coordinator(context, request["key_type"], key)
        code = group_error_code(error)
        return {"error_code": code, "error_message": str(error), "node_id": -1, "host": "", "port": -1}

    if request["key_type"] in _ACCESS and all(refusal(key) is not None for key in keys):
        reply(None)  # nothing is created for a client that gets no response about it
    elif request["key_type"] == _TRANSACTION_KEY:
        broker.internal_streams.ensure_transactions(reply)
    elif request["key_type"] == _GROUP_KEY:
        broker.internal_streams.ensure_offsets(reply)
    elif request["key_type"] == _SHARE_KEY:
        broker.internal_streams.ensure_shares(reply)
    else:
        reply(None)


def _coordinator(context: Context, key_type: int, key: str) -> dict[str, Any]:
    """The coordinator of a group, a transactional id or a share partition."""
    name, partition_of = _STORED[key_type]
    stream = context.broker.streams.find(name)
    index = -1 if stream is None else partition_of(key, len(stream.partitions))
    place = coordinator_place(context, stream, index)
    if place is None:
        why = f"partition {index} of {name}, which stores it, has no leader at present"
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {"error_code": code, "error_message": why, "node_id": -1, "host": "", "port": -1}
    found = {"error_code": ErrorCode.NONE, "error_message": None}
    return found | {"node_id": place.node_id, "host": place.host, "port": place.port}


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
            exchange.reply(_join_error(context, exchange, request, result))

    # The stream of offsets may not be there yet if the client found the coordinator before a restart.
    context.broker.internal_streams.ensure_offsets(
        lambda error: done(error) if error is not None else context.broker.groups.join(request["group_id"], join, done)
    )


def _join_error(context: Context, exchange: Exchange, request: Message, error: object) -> Message:
    found = context.broker.groups.kinds.of(request["group_id"])
    if isinstance(error, MemberIdRequired):
        member_id = error.member_id
    elif isinstance(error, GroupFull) or (found is not None and found.kind is not GroupKind.CLASSIC):
        member_id = ""  # as in Apache Kafka, which names the member only where it may come again
    else:
        member_id = request["member_id"]
    return {
        "error_code": group_error_code(error if isinstance(error, Exception) else None),
        "member_id": member_id,
        "protocol_name": None if exchange.version >= 7 else "",
    }


def handle_sync_group(context: Context, exchange: Exchange) -> None:
    """A member gets its assignment; the leader brings everybody's."""
    request = exchange.message()
    if exchange.version >= _NAMES_PROTOCOL and None in (request["protocol_type"], request["protocol_name"]):
        exchange.reply({"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
        return
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
    if exchange.version >= _SEVERAL_LEAVE:
        members = [LeavingMember(member["member_id"], member["group_instance_id"]) for member in request["members"]]
    else:
        members = [LeavingMember(request["member_id"], None)]

    def done(results: list[DuramenError | None] | DuramenError) -> None:
        if isinstance(results, UnknownMember) and exchange.version >= _SEVERAL_LEAVE:
            results = [results] * len(members)
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
        alone = group_error_code(results[0]) if exchange.version < _SEVERAL_LEAVE else ErrorCode.NONE
        exchange.reply({"error_code": alone, "members": answers})

    context.broker.groups.leave(request["group_id"], members, done)
