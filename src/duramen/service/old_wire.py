"""The encoding between nodes below feature level 3, needed by rolling upgrades (docs/adr/rpc.md).

A byte of its own, or none, identifies the possible requests of a body; MessagePack follows, tagged if there are
several. This module and the tags of the requests can be removed once LEAST_LEVEL is Feature.METHOD_TABLE.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from duramen.base.errors import DuramenError, NodeStarting, NotController, NotLeader, OutcomeUnknown, RequestInvalid
from duramen.base.ports import Buffer
from duramen.broker.control.methods import METHODS as CONTROL
from duramen.broker.control.requests import REGISTRATION_FIELD, Register
from duramen.broker.control.requests import Request as ControlRequest
from duramen.broker.control.responses import Answer
from duramen.broker.list_offsets import FIND_BOUNDS, FindBounds, FoundBounds, ListOffsetsPartition, PartitionBounds
from duramen.controller.admin import completeness
from duramen.controller.admin.completeness import SURVEY_REPLICAS, KeptReplicas, SurveyReplicas
from duramen.controller.admin.replica_survey import ReplicaCompleteness
from duramen.coordinators.group.listing import LIST_GROUPS, GroupRow, GroupRows
from duramen.coordinators.share.requests import CHANGE_STATES, DROP, LOCATE, READ_STATE, WRITE_STATE
from duramen.coordinators.transaction.cluster.requests import JOIN, WRITE_MARKERS
from duramen.rpc.errors import Refused
from duramen.rpc.methods import UNREADABLE, Method
from duramen.rpc.retry import unasked_as
from duramen.rpc.wire import ReceivedRequest
from duramen.service.forwarded_requests import (
    APPEND,
    CHANGE_GROUP,
    DELETE_ALL_RECORDS,
    DELETE_RECORDS,
    READ,
    SHOW_GROUP,
    AppendRequest,
    Delete,
    Manage,
    Read,
    method_of,
)

__all__ = ["OldWire"]

Request = TypeVar("Request")
Response = TypeVar("Response")

_Pack = Callable[[Any], Any]


class _Refusal(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    why: Refused


class _Form(NamedTuple):
    """The encoding of a method: its tag, and the conversions of requests and responses before MessagePack.

    `pack_response` also encodes errors; None: an empty body without information.
    """

    mark: bytes
    pack: _Pack
    responses: "msgspec.msgpack.Decoder[Any]"
    pack_response: _Pack
    unpack_response: _Pack


class _Marked(NamedTuple):
    """The requests behind a mark."""

    requests: "msgspec.msgpack.Decoder[Any]"
    unpack: _Pack


def _same(value: Any) -> Any:
    return value


def _unless_error(pack: _Pack) -> _Pack:
    return lambda outcome: None if isinstance(outcome, DuramenError) else pack(outcome)


def _encode_bounds(found: FoundBounds) -> list[PartitionBounds | str]:
    return [
        bounds if bounds is not None else "" if refused is None else refused.message
        for bounds, refused in found.partitions
    ]


def _decode_bounds(said: list[PartitionBounds | str]) -> FoundBounds:
    return FoundBounds([(None, Refused(NotLeader.id, one)) if isinstance(one, str) else (one, None) for one in said])


def _encode_tagged(outcome: Any) -> Any:
    if isinstance(outcome, NodeStarting):
        return None
    return _Refusal(Refused.of(outcome)) if isinstance(outcome, DuramenError) else outcome


def _decode_tagged(said: Any) -> Any:
    return said.why.error() if isinstance(said, _Refusal) else said


class _Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A response of the controller: one of the two."""

    answer: Answer | None = None
    refused: Refused | None = None


def _encode_reply(outcome: Answer | DuramenError) -> _Reply:
    outcome = unasked_as(NotController, outcome)
    return _Reply(refused=Refused.of(outcome)) if isinstance(outcome, DuramenError) else _Reply(outcome)


def _decode_reply(reply: _Reply) -> Answer | DuramenError:
    if reply.answer is not None:
        return reply.answer
    return OutcomeUnknown("the controller's answer says nothing") if reply.refused is None else reply.refused.error()


def _encode_registration(request: Register) -> Any:
    """Such a node refuses the request if it has `damaged`, the last field of the registration: only true is sent."""
    said = msgspec.to_builtins(request)
    if not request.registration.damaged:
        said[REGISTRATION_FIELD] = said[REGISTRATION_FIELD][:-1]
    return said


_REPLIES: Final = msgspec.msgpack.Decoder(_Reply)
_CONTROL: Final = _Marked(msgspec.msgpack.Decoder(ControlRequest), lambda request: request)


def _is_map(data: memoryview) -> bool:
    """Whether the MessagePack starts with a map: a request to the controller."""
    return bool(data) and (data[0] & 0xF0 == 0x80 or data[0] in (0xDE, 0xDF))


def _tagged(mark: bytes, *methods: Method[Any, Any]) -> tuple[dict[str, _Form], _Marked]:
    forms = {
        method.name: _Form(
            mark, _same, msgspec.msgpack.Decoder(method.response | _Refusal), _encode_tagged, _decode_tagged
        )
        for method in methods
    }
    requests: Any = reduce(or_, [method.request for method in methods])
    return forms, _Marked(msgspec.msgpack.Decoder(requests), _same)


_PLAIN: Final = _tagged(
    b"", JOIN, WRITE_MARKERS, APPEND, READ, DELETE_RECORDS, DELETE_ALL_RECORDS, SHOW_GROUP, CHANGE_GROUP
)
_SHARES: Final = _tagged(b"\1", READ_STATE, WRITE_STATE, CHANGE_STATES, LOCATE, DROP)

_FORMS: Final = {
    LIST_GROUPS.name: _Form(
        b"\0", _same, msgspec.msgpack.Decoder(list[GroupRow]), _unless_error(lambda found: found.rows), GroupRows
    ),
    FIND_BOUNDS.name: _Form(
        b"\2", lambda request: request.wanted, msgspec.msgpack.Decoder(list[PartitionBounds | str]),
        _unless_error(_encode_bounds), _decode_bounds,
    ),
    SURVEY_REPLICAS.name: _Form(
        b"\3", lambda request: request.wanted, msgspec.msgpack.Decoder(list[ReplicaCompleteness | None]),
        _unless_error(lambda found: found.kept), KeptReplicas,
    ),
    **_PLAIN[0],
    **_SHARES[0],
    **{
        method.name: _Form(
            b"", _encode_registration if method.request is Register else _same, _REPLIES, _encode_reply, _decode_reply
        )
        for method in CONTROL
    },
}  # fmt: skip
_MARKED: Final = {
    b"\0": _Marked(msgspec.msgpack.Decoder(LIST_GROUPS.request), _same),
    b"\1": _SHARES[1],
    b"\2": _Marked(msgspec.msgpack.Decoder(list[ListOffsetsPartition]), FindBounds),
    b"\3": _Marked(msgspec.msgpack.Decoder(list[completeness.SurveyTarget]), SurveyReplicas),
}
_ALL: Final[tuple[Method[Any, Any], ...]] = (
    LIST_GROUPS, FIND_BOUNDS, SURVEY_REPLICAS, JOIN, WRITE_MARKERS, READ_STATE, WRITE_STATE, CHANGE_STATES, LOCATE,
    DROP, *CONTROL,
)  # fmt: skip
_METHODS: Final[dict[type, Method[Any, Any]]] = {method.request: method for method in _ALL}
_encoder: Final = msgspec.msgpack.Encoder()


class OldWire:
    """The Wire of nodes below feature level 3."""

    def knows(self, method: Method[Any, Any]) -> bool:
        return method.name in _FORMS

    def encode_request(self, method: Method[Request, Response], request: Request) -> bytes:
        form = _FORMS[method.name]
        return form.mark + _encoder.encode(form.pack(request))

    def decode_request(self, body: Buffer) -> ReceivedRequest:
        data = memoryview(body)
        marked = _MARKED.get(bytes(data[:1]))
        try:
            if _is_map(data):
                request = _CONTROL.requests.decode(data)
            elif marked is None:
                request = _PLAIN[1].requests.decode(data)
            else:
                request = marked.unpack(marked.requests.decode(data[1:]))
        except UNREADABLE as error:
            raise RequestInvalid(f"a request of another node cannot be read: {error}") from None
        if isinstance(request, AppendRequest | Read | Delete | Manage):
            return ReceivedRequest(method_of(request), request)
        return ReceivedRequest(_METHODS[type(request)], request)

    def encode_response(self, method: Method[Request, Response], outcome: Response | DuramenError) -> bytes:
        said = _FORMS[method.name].pack_response(outcome)
        return b"" if said is None else _encoder.encode(said)

    def decode_response(self, method: Method[Request, Response], body: Buffer) -> Response | DuramenError:
        form = _FORMS[method.name]
        if not len(body):
            return NodeStarting("the node that was asked is not ready yet")
        try:
            outcome: Response | DuramenError = form.unpack_response(form.responses.decode(body))
        except UNREADABLE as error:
            return OutcomeUnknown(f"a response to the method {method.name} cannot be read: {error}")
        return outcome

    def encode_refusal(self, error: DuramenError) -> bytes:
        return _encoder.encode(_Refusal(Refused.of(error)))
