"""Records about Spark queries in `__transaction_state`, beside those of transactional ids.

    key    int16 version 10000: string name, `__spark/<query>`
    value  int16 version 0: MessagePack array of the run's number, the names of the newest runs, the batch, the run that
           decided it, its digest, an array of [partition, attempt] that won, and the time of the change (ms)

A null value is a tombstone. Apache Kafka's tools show keys of an unknown version as unknown.
"""

import struct
from typing import Annotated, Final

import msgspec

from duramen.base.errors import BatchCorrupt
from duramen.codec.attempts import PREFIX
from duramen.transactions.batch_decisions import AttemptWinner, Query

__all__ = ["decode_query", "decode_query_key", "encode_query", "encode_query_key"]

_KEY_VERSION: Final = 10_000
_VALUE_VERSION: Final = 0

_INT16 = struct.Struct(">h")
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Value(msgspec.Struct, frozen=True, array_like=True):
    run: _Count
    runs: tuple[str, ...]
    batch: Annotated[int, msgspec.Meta(ge=-1)]
    batch_run: _Count
    digest: bytes
    winners: tuple[tuple[_Count, _Count], ...]
    updated_ms: int


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Value)


def encode_query_key(query: str) -> bytes:
    """The key of a query's records."""
    name = (PREFIX + query).encode()
    return _INT16.pack(_KEY_VERSION) + _INT16.pack(len(name)) + name


def decode_query_key(data: bytes) -> str | None:
    """The query; None for a key of another version. Raises BatchCorrupt."""
    try:
        if _INT16.unpack_from(data)[0] != _KEY_VERSION:
            return None
        name = data[4:].decode()
        if _INT16.unpack_from(data, 2)[0] + 4 != len(data) or not name.startswith(PREFIX):
            raise ValueError("its length or its prefix is wrong")
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"a key in __transaction_state is damaged: {error}") from None
    return name.removeprefix(PREFIX)


def encode_query(query: Query) -> bytes:
    """A query as it is stored."""
    winners = tuple(sorted(query.winners))
    value = _Value(query.run, query.runs, query.batch, query.batch_run, query.digest, winners, query.updated_ms)
    return _INT16.pack(_VALUE_VERSION) + _encoder.encode(value)


def decode_query(id_: str, data: bytes) -> Query:
    """The query in `data`. Raises BatchCorrupt."""
    try:
        if _INT16.unpack_from(data)[0] != _VALUE_VERSION:
            raise ValueError("its version is not known")
        found = _decoder.decode(data[2:])
    except (msgspec.MsgspecError, ValueError, struct.error) as error:
        raise BatchCorrupt(f"query {id_} in __transaction_state is damaged: {error}") from None
    winners = frozenset(AttemptWinner(*one) for one in found.winners)
    return Query(
        id_, found.run, found.runs, found.batch, found.batch_run, found.digest, winners, found.updated_ms
    )  # fmt: skip
