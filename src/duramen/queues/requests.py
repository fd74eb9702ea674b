"""Requests with an id: their outcome is kept for some time, so that a repeat has no effect. Pure."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import QueueRequestReused
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.queues.pending_rows import PendingRows
from duramen.queues.rows import (
    REQUEST_NUMBERS_KEY,
    RequestRow,
    request_key,
    request_number_key,
    request_number_of,
    request_number_value,
    request_numbers,
    request_numbers_value,
    request_row,
    request_value,
)

__all__ = ["KEPT_MS", "MOST_REQUESTS", "RequestId", "digest_of", "made_before", "remember"]

KEPT_MS: Final = 10 * 60 * 1000
"""The least period for which a request is known, unless too many follow."""
DIGEST_BYTES: Final = 16
MOST_REQUESTS: Final = 100_000
"""The number of requests that a shard knows."""


class RequestId(NamedTuple):
    """A client's request id, and its hash."""

    id: bytes
    hash: bytes


def remember(rows: PendingRows, found: Sequence[tuple[bytes, RequestRow]]) -> None:
    """Store requests, in this order, by the hashes of their ids, and forget the oldest ones.

    Their times are those of the log, so that each replica knows them for at least as long.
    """
    if not found:
        return
    oldest, following = request_numbers(rows)
    for hashed, row in found:
        rows.put(request_key(hashed), request_value(row))
        rows.put(request_number_key(following), request_number_value(row.time_ms, hashed))
        following += 1
    newest_ms = found[-1][1].time_ms
    while oldest < following - 1:
        time_ms, known = request_number_of(rows, oldest)
        if following - oldest <= MOST_REQUESTS and time_ms > newest_ms - KEPT_MS:
            break
        rows.put(request_key(known), None)
        rows.put(request_number_key(oldest), None)
        oldest += 1
    rows.put(REQUEST_NUMBERS_KEY, request_numbers_value(oldest, following))


def digest_of(content: object) -> bytes:
    """The digest of a request's content, which is tuples and lists of bytes, texts, integers and None."""
    return blake2b(msgspec.msgpack.encode(content), digest_size=DIGEST_BYTES).digest()


def made_before(rows: StateRows, hashed: bytes, digest: bytes) -> Position | None:
    """The position of the first record of a repeated request, by the hash of its id.

    Raises QueueRequestReused if the request with that id had another content.
    """
    row = request_row(rows, hashed)
    if row is None:
        return None
    if row.digest != digest:
        said = "record" if row.records == 1 else "records"
        raise QueueRequestReused(
            f"the request id was used for a request with another content: {row.kind} with {row.records} {said}"
        )
    return row.position
