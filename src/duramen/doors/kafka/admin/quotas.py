"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.gather import gather
from duramen.metadata.quotas import Component, Match, alter_quotas, check_type, entity_of, find_quotas

__all__ = ["handle_alter_client_quotas", "handle_describe_client_quotas"]

_MATCHES: Final[Sequence[Match]] = ("exact", "default", "any")


def handle_describe_client_quotas(context: Context, exchange: Exchange) -> None:
    """The quotas that a filter finds."""
    request = exchange.message()
    try:
        components: list[Component] = []
        for one in request["components"]:
            # As in Apache Kafka, component by component: its type before how it is to match.
            check_type(one["entity_type"], [component.type for component in components])
            components.append(_component(one))
        found = find_quotas(context.broker.metadata_state, components, strict=request["strict"])
    except DuramenError as error:
        unsupported = not isinstance(error, RequestInvalid)
        code = ErrorCode.UNSUPPORTED_VERSION if unsupported else error_code(error)
        exchange.reply({"error_code": code, "error_message": str(error), "entries": None})
        return
    entries = [
        {"entity": _shown(entity), "values": [{"key": key, "value": value} for key, value in sorted(values.items())]}
        for entity, values in found
    ]
    exchange.reply({"entries": entries})


def _component(asked: Message) -> Component:
    number, name = asked["match_type"], asked["match"]
    if not 0 <= number < len(_MATCHES):
        raise RequestInvalid(f"there is no match type {number}")
    match = _MATCHES[number]
    if (match == "exact") != (name is not None):
        raise RequestInvalid(f"the match type {match} {'needs a name' if match == 'exact' else 'has no name'}")
    return Component(asked["entity_type"], match, name)


def _shown(entity: Sequence[tuple[str, str | None]]) -> list[Message]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def handle_alter_client_quotas(context: Context, exchange: Exchange) -> None:
    """Change quotas; each entity gets its response once its change is durable.

    As in Apache Kafka, a repeated entity gets one response, with an error; its first change is executed.
    """
    request = exchange.message()
    entries: dict[frozenset[tuple[str, str | None]], list[Message]] = {}
    for entry in request["entries"]:
        # Of a type that is there twice the last name counts, also in the answer.
        named = {part["entity_type"]: part["entity_name"] for part in entry["entity"]}
        entries.setdefault(frozenset(named.items()), []).append(entry)
    put = gather(len(entries), lambda answers: exchange.reply({"entries": answers}))

    def finish(at: int, parts: frozenset[tuple[str, str | None]], error: DuramenError | None) -> None:
        if error is None and len(entries[parts]) > 1:
            error = RequestInvalid("an entity is named more than once")
        message = None if error is None else str(error)
        entity = _shown(sorted(parts, key=itemgetter(0)))
        put(at, {"error_code": error_code(error), "error_message": message, "entity": entity})

    for at, (parts, same) in enumerate(entries.items()):
        done = partial(finish, at, parts)
        try:
            entity = entity_of(parts)
            changes = [(one["key"], None if one["remove"] else one["value"]) for one in same[0]["ops"]]
            if len({key for key, _ in changes}) < len(changes):
                raise RequestInvalid("a quota is named more than once")
            alter_quotas(context.broker.metadata_state, entity, changes)
        except DuramenError as error:
            done(error)
            continue
        if request["validate_only"]:
            done(None)
        else:
            context.broker.alter_quotas(entity, changes, done)
