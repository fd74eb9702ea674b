"""Requests and answers as bytes (MessagePack), for nodes that pass them on."""

from typing import Final

import msgspec

from duramen.base.errors import DuramenError, OutcomeUnknown, RequestInvalid
from duramen.base.ports import Buffer
from duramen.broker.control.answers import Answer, Outcome
from duramen.broker.control.requests import Request

__all__ = ["decode_outcome", "decode_request", "encode_outcome", "encode_request"]


class _Refused(msgspec.Struct, frozen=True, array_like=True):
    """An error, by its stable id, with its message."""

    id: str
    message: str


class _Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the two."""

    answer: Answer | None = None
    refused: _Refused | None = None


_requests: Final = msgspec.msgpack.Decoder(Request)
_replies: Final = msgspec.msgpack.Decoder(_Reply)
_encoder: Final = msgspec.msgpack.Encoder()


def encode_request(request: Request) -> bytes:
    """The request in bytes."""
    return _encoder.encode(request)


def decode_request(body: Buffer) -> Request:
    """The request in these bytes. Raises RequestInvalid."""
    try:
        request: Request = _requests.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestInvalid(f"a request to the controller cannot be read: {error}") from None
    return request


def encode_outcome(outcome: Outcome) -> bytes:
    """The answer, or why there is none, in bytes."""
    if isinstance(outcome, Answer):
        return _encoder.encode(_Reply(answer=outcome))
    return _encoder.encode(_Reply(refused=_Refused(outcome.id, str(outcome))))


def decode_outcome(body: Buffer) -> Outcome:
    """What these bytes say; OutcomeUnknown where they cannot be read, for the request was."""
    try:
        reply = _replies.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        return OutcomeUnknown(f"the controller's answer cannot be read: {error}")
    if reply.answer is not None:
        return reply.answer
    if reply.refused is None:
        return OutcomeUnknown("the controller's answer says nothing")
    return _error_of(reply.refused)


def _error_of(refused: _Refused) -> DuramenError:
    """The error with that id; one that this version does not know is told as it came."""
    known = {kind.id: kind for kind in _kinds(DuramenError)}
    kind = known.get(refused.id)
    if kind is None or kind.__init__ is not DuramenError.__init__:
        return RequestInvalid(f"{refused.id}: {refused.message}")
    return kind(refused.message)


def _kinds(base: type[DuramenError]) -> list[type[DuramenError]]:
    return [base, *(found for derived in base.__subclasses__() for found in _kinds(derived))]
