"""Events on their way to the node that leads the quorum of the controller, and its answer, as MessagePack.

An array for each message: its number, then its fields in the order below. An event is what its record has as a value.
"""

from typing import Annotated, Final

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.quorum import Whole

__all__ = ["Answer", "Committed", "Proposal", "Refused", "decode_answer", "decode_proposal", "encode"]

Text = Annotated[str, msgspec.Meta(max_length=4096)]


class Proposal(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Commit these, next to each other."""

    events: Annotated[tuple[bytes, ...], msgspec.Meta(min_length=1, max_length=1_000_000)]


class Committed(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """They are committed: the position of the last."""

    epoch: Whole
    offset: Whole


class Refused(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """They are not, or nobody knows: the id of an error, and its text."""

    error: Text
    text: Text


Answer = Committed | Refused

_encoder: Final = msgspec.msgpack.Encoder()
_proposals: Final = msgspec.msgpack.Decoder(Proposal)
_answers: "Final[msgspec.msgpack.Decoder[Answer]]" = msgspec.msgpack.Decoder(Answer)


def encode(message: Proposal | Answer) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode_proposal(body: Buffer) -> Proposal:
    """The proposal in these bytes. Raises RequestInvalid."""
    try:
        return _proposals.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"a proposal is damaged: {error}") from None


def decode_answer(body: Buffer) -> Answer:
    """The answer in these bytes. Raises RequestInvalid."""
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"an answer to a proposal is damaged: {error}") from None
