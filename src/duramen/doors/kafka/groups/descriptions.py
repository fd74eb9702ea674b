"""Responses with a description of each requested group: DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe."""

from collections.abc import Callable, Iterable
from typing import Final

from duramen.base.errors import DuramenError
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.service.authorize import Access, Operation, ResourceType

__all__ = ["reply_descriptions", "with_message"]

_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.GROUP)


def with_message(error: DuramenError) -> Message:
    """The fields of a group that cannot be described."""
    return {"error_code": group_error_code(error), "error_message": str(error)}


def reply_descriptions(
    context: Context,
    exchange: Exchange,
    group_ids: Iterable[str],
    describe: Callable[[str], Message],
    refused: Callable[[DuramenError], Message] = with_message,
) -> None:
    """Reply with the description of each group, or with `refused` if it cannot be described."""
    groups: list[Message] = []
    budget = context.response_budget()
    for group_id in group_ids:
        try:
            budget.check()
            exchange.admitted.check(_DESCRIBE, group_id)
            described = describe(group_id)
            budget.take(described)
            groups.append(described)
        except DuramenError as error:
            groups.append({"group_id": group_id, **refused(error)})
    exchange.reply({"groups": groups})
