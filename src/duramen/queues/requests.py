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
_STEP_MS: Final = 1000
"""The most that one request advances the time that counts: clocks of leaders may jump, and differ."""


class RequestId(NamedTuple):
    """A client's request id, and its hash."""

    id: bytes
    hash: bytes


def remember(rows: PendingRows, found: Sequence[tuple[bytes, RequestRow]]) -> None:
    """Store requests, in this order, by the hashes of their ids, and forget the oldest ones.

    Their age is the sum of the steps between the times of later requests, each of a second at most. The times are in
    the log, so each replica forgets the same requests.
    """
    if not found:
        return
    oldest, following = request_numbers(rows)
    age_ms, before_ms = _newest(rows, oldest, following, found[0][1].time_ms)
    for hashed, row in found:
        age_ms += _counted_ms(before_ms, row.time_ms)
        before_ms = row.time_ms
        rows.put(request_key(hashed), request_value(row))
        rows.put(request_number_key(following), request_number_value(age_ms, hashed))
        following += 1
    while oldest < following - 1:
        known_ms, known = request_number_of(rows, oldest)
        if following - oldest <= MOST_REQUESTS and known_ms > age_ms - KEPT_MS:
            break
        rows.put(request_key(known), None)
        rows.put(request_number_key(oldest), None)
        oldest += 1
    rows.put(REQUEST_NUMBERS_KEY, request_numbers_value(oldest, following))


def _counted_ms(before_ms: int, time_ms: int) -> int:
    """The part that counts of the time between two requests, by their own times."""
    return max(0, min(time_ms - before_ms, _STEP_MS))


def _newest(rows: PendingRows, oldest: int, following: int, first_ms: int) -> tuple[int, int]:
    """The counted time of the newest known request, and its own; those of the first request if none is known."""
    if oldest == following:
        return first_ms, first_ms
    age_ms, hashed = request_number_of(rows, following - 1)
    row = request_row(rows, hashed)
    return age_ms, first_ms if row is None else row.time_ms


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
