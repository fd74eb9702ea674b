"""Group administration: ListGroups, DescribeGroups, DeleteGroups."""

from collections.abc import Callable, Iterable
from typing import Final

from duramen.base.errors import DuramenError, GroupNotFound
from duramen.codec.kafka.schema import Message
from duramen.coordinators.group.kinds import GroupDescription, GroupKind
from duramen.doors.kafka.groups.descriptions import reply_descriptions
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.groups.values import GroupState
from duramen.service.authorize import Access, Operation, ResourceType

__all__ = ["handle_delete_groups", "handle_describe_groups", "handle_list_groups", "listed"]

_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.GROUP)
_DELETE: Final = Access(Operation.DELETE, ResourceType.GROUP)


def listed(needs: ApiNeeds) -> Iterable[str]:
    """The groups that there are."""
    return [group.group_id for group in needs.context.broker.groups.listing()]


def handle_list_groups(context: Context, exchange: Exchange) -> None:
    """Every group that is coordinated here, or those in some states and of some kinds."""
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
                if exchange.admitted.refusal(_DESCRIBE, group.group_id) is None
            ]
        }
    )


def handle_describe_groups(context: Context, exchange: Exchange) -> None:
    """Groups of the classic protocol with their members; one that does not exist, or is of another kind, is dead."""
    groups = context.broker.groups

    def describe(group_id: str) -> Message:
        groups.check_coordinated(group_id)
        groups.kinds.check(group_id, GroupKind.CLASSIC)
        return _described(groups.describe(group_id))

    reply_descriptions(context, exchange, exchange.message()["groups"], describe, _refused)


def _refused(error: DuramenError) -> Message:
    if isinstance(error, GroupNotFound):
        return {"group_state": GroupState.DEAD.value}
    return {"error_code": group_error_code(error)}


def _described(described: GroupDescription) -> Message:
    snapshot = described.snapshot
    # As in Apache Kafka: until a rebalance is complete, the group has no chosen protocol.
    settled = described.state is GroupState.STABLE
    return {
        "group_id": described.group_id,
        "group_state": described.state.value,
        "protocol_type": snapshot.protocol_type,
        "protocol_data": (snapshot.protocol or "") if settled else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.subscription if settled else b"",
                "member_assignment": member.assignment,
            }
            for member in snapshot.members
        ],
    }


def handle_delete_groups(context: Context, exchange: Exchange) -> None:
    """Remove groups without members, with their offsets."""
    names = list(dict.fromkeys(exchange.message()["groups_names"]))
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
        refusal = exchange.admitted.refusal(_DELETE, name)
        if refusal is not None:
            put(at)(refusal)
        else:
            context.broker.groups.delete(name, put(at))
