"""What nodes ask each other about transactions, and the answers, as values and as bytes (MessagePack)."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from duramen.base.errors import DuramenError, OutcomeUnknown, RequestInvalid
from duramen.base.ports import Buffer
from duramen.broker.coordinating.nodes import Words
from duramen.broker.refusals import Refused
from duramen.transactions.values import NO_SEQUENCE

__all__ = [
    "WORDS",
    "Answer",
    "AnswerDone",
    "Join",
    "Joined",
    "Request",
    "WriteMarkers",
    "Written",
    "decode",
    "decode_answer",
    "encode",
]

_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """The leader of partitions asks the coordinator before it appends what a transaction writes there (KIP-890).

    With `joins` they are part of the transaction from then on; without, they have to be already. `partitions` are
    (stream, partition).
    """

    id: str
    producer_id: int
    epoch: int
    joins: bool
    partitions: tuple[tuple[str, _Count], ...]


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    """It may append. `begins` says of each partition whether it has joined just now."""

    coordinator_epoch: int
    begins: tuple[bool, ...]


class WriteMarkers(msgspec.Struct, frozen=True, array_like=True, tag="markers"):
    """The coordinator asks a leader to end a transaction in partitions of (stream id, partition).

    `coordinator` is the partition of `__transaction_state`, which its asker leads in `coordinator_epoch`. Of `version`
    2 on the marker's epoch is higher than any that the transaction has written in (KIP-890). `sequence` is the
    transaction's commit sequence, which older nodes do not know of.
    """

    coordinator: _Count
    coordinator_epoch: int
    producer_id: int
    epoch: int
    commit: bool
    version: int
    partitions: tuple[tuple[_StreamKey, _Count], ...]
    sequence: int = NO_SEQUENCE


class Written(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """For each partition None where all replicas in sync have the marker, or why not."""

    results: tuple[Refused | None, ...]


class _Refusal(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """Nothing was done."""

    why: Refused


Request = Join | WriteMarkers
Answer = Joined | Written
AnswerDone = Callable[[Answer | DuramenError], None]

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(Request)
_answers: Final = msgspec.msgpack.Decoder(Joined | Written | _Refusal)


def encode(value: Request | Answer | Refused) -> bytes:
    """A request or an answer in bytes."""
    return _encoder.encode(_Refusal(value) if isinstance(value, Refused) else value)


def decode(body: Buffer) -> Request:
    """The request in these bytes. Raises RequestInvalid."""
    try:
        request: Request = _requests.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestInvalid(f"a request about transactions cannot be read: {error}") from None
    return request


def decode_answer(body: Buffer) -> Answer:
    """The answer in these bytes. Raises what it says, or OutcomeUnknown where it cannot be read."""
    try:
        answer: Joined | Written | _Refusal = _answers.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise OutcomeUnknown(f"an answer about transactions cannot be read: {error}") from None
    if isinstance(answer, _Refusal):
        raise answer.why.error()
    return answer


WORDS: Final = Words[Request, Answer](encode, decode, decode_answer)
