"""Requests and answers as bytes (MessagePack), for nodes that pass them on."""

from typing import Final

import msgspec

from duramen.base.errors import OutcomeUnknown, RequestInvalid
from duramen.base.ports import Buffer
from duramen.broker.control.answers import Answer, Outcome
from duramen.broker.control.requests import Request
from duramen.rpc.errors import Refused

__all__ = ["decode_outcome", "decode_request", "encode_outcome", "encode_request"]


class _Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the two."""

    answer: Answer | None = None
    refused: Refused | None = None


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
    return _encoder.encode(_Reply(refused=Refused.of(outcome)))


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
    return reply.refused.error()
