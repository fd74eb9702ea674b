"""Queries on shards between nodes: MessagePack of the query and of its response. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from duramen.base.errors import DuramenError, OutcomeUnknown, QueueHistoryRewritten, RequestInvalid
from duramen.queues.leases import Leased
from duramen.queues.machine import Ack, Nack
from duramen.queues.reading import Counted, Names
from duramen.queues.topics import TopicBounds
from duramen.queues.totals import ShardTotals
from duramen.queues.usage import UsagePage
from duramen.rpc.errors import Refused
from duramen.rpc.methods import UNREADABLE
from duramen.service import shard_queries
from duramen.service.shard_queries import (
    BoundsQuery,
    CountQuery,
    ExtendQuery,
    LeaseQuery,
    NamesQuery,
    ShardQuery,
    TotalsQuery,
    UsageQuery,
    WaitQuery,
)

__all__ = [
    "Rewritten",
    "answer_bytes",
    "answer_of",
    "named",
    "named_of",
    "query_of",
    "refused_bytes",
    "refused_of",
    "rewritten_error",
    "rewritten_of",
    "settled_of",
    "wait_of",
]

Rewritten = tuple[str, str, str, str]
"""What QueueHistoryRewritten says: its message, start, by and reason."""
_RefusedEntry = tuple[int, Refused, Rewritten | None]

_QUERIES: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (LeaseQuery, ExtendQuery, NamesQuery, CountQuery, BoundsQuery, UsageQuery, TotalsQuery)
}
_SETTLING: Final[Mapping[str, type[Any]]] = {kind.__name__: kind for kind in (Ack, Nack)}
_ANSWERS: Final[Mapping[type[Any], Any]] = {
    LeaseQuery: list[Leased], NamesQuery: Names, CountQuery: tuple[Counted, int], BoundsQuery: TopicBounds,
    UsageQuery: UsagePage, TotalsQuery: ShardTotals | None,
}  # fmt: skip


def named(command: Any) -> bytes:
    """A command or a query with the name of its kind. Last fields at their defaults are left out for older nodes."""
    fields, defaults = list(command), list(type(command)._field_defaults.values())
    while defaults and fields[-1] == defaults.pop():
        fields.pop()
    return msgspec.msgpack.encode((type(command).__name__, fields))


def named_of(kinds: Mapping[str, type[Any]], body: bytes) -> Any:
    """Decodes the result of `named`, one of these kinds. Raises RequestInvalid."""
    name, content = _decoded(body, tuple[str, msgspec.Raw])
    kind = kinds.get(name)
    if kind is None:
        raise RequestInvalid(f"{name[:40]!r} is not known here: nothing of that name is asked about queues")
    return _decoded(content, kind)


def _decoded(content: Any, type_: Any) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=type_)
    except UNREADABLE as error:
        raise RequestInvalid(f"a request about queues cannot be read: {error}") from None


def query_of(body: bytes) -> ShardQuery:
    """A query. Raises RequestInvalid."""
    found: ShardQuery = named_of(_QUERIES, body)
    return found


def settled_of(body: bytes) -> Ack | Nack:
    """A command on leased entries. Raises RequestInvalid."""
    found: Ack | Nack = named_of(_SETTLING, body)
    return found


def wait_of(body: bytes) -> WaitQuery:
    """Decodes a wait. Raises RequestInvalid."""
    found: WaitQuery = _decoded(body, WaitQuery)
    return found


def answer_bytes(query: ShardQuery, answer: Any) -> bytes:
    """Encodes a successful response to a query."""
    return refused_bytes(answer) if isinstance(query, ExtendQuery) else msgspec.msgpack.encode(answer)


def answer_of(query: ShardQuery, content: bytes) -> Any:
    """Decodes the response of another node; OutcomeUnknown if it is invalid."""
    return refused_of(content) if isinstance(query, ExtendQuery) else _read(content, _ANSWERS[type(query)])


def refused_bytes(refused: shard_queries.Refused) -> bytes:
    """The entries that were refused, and why."""
    return msgspec.msgpack.encode(
        [(number, Refused.of(error), rewritten_of(error)) for number, error in refused.items()]
    )  # fmt: skip


def refused_of(content: bytes) -> shard_queries.Refused | DuramenError:
    """Decodes `refused_bytes`; OutcomeUnknown if it is invalid."""
    found = _read(content, list[_RefusedEntry])
    if isinstance(found, DuramenError):
        return found
    return {number: rewritten_error(said) or refused.error() for number, refused, said in found}


def _read(content: bytes, type_: Any) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=type_)
    except UNREADABLE as error:
        return OutcomeUnknown(f"the shard's leader has answered what cannot be read: {error}")


def rewritten_of(answer: object) -> Rewritten | None:
    """The content of QueueHistoryRewritten; None for other errors."""
    if not isinstance(answer, QueueHistoryRewritten):
        return None
    return str(answer), answer.start, answer.by, answer.reason


def rewritten_error(said: Rewritten | None) -> QueueHistoryRewritten | None:
    """The error with the content of `rewritten_of`."""
    if said is None:
        return None
    error = QueueHistoryRewritten(said[0])
    _, error.start, error.by, error.reason = said
    return error
