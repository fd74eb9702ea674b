"""The flights keyed by tail number: a consumer leaves and returns, and reads each aircraft once."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import DemoFailed
from duramen.client.api.client import Client, connect
from duramen.client.api.records import NewRecord
from duramen.demo.flights import DemoFlight

__all__ = ["CaughtUp", "catch_up"]

_STREAM: Final = "aircraft"
_GROUP: Final = "hangar"
_AT_ONCE: Final = 20_000
_MOST: Final = 100_000
"""Flights, so that this takes some ten seconds at most."""

State = dict[bytes, bytes]


class CaughtUp(NamedTuple):
    """What the consumer was given: `missed` flights were written while it was away, of `read` aircraft, each once."""

    known: int
    missed: int
    read: int
    seconds: float


class _Aircraft(msgspec.Struct):
    tailnum: str | None


def catch_up(server: str, flights: Sequence[DemoFlight]) -> CaughtUp:
    """Write half of the first flights, let a consumer read them, write the other half, and let it catch up.

    Raises DemoFailed where its state is not the newest flight of each aircraft, or it was given one twice.
    """
    decode = msgspec.json.Decoder(_Aircraft).decode
    rows = [(decode(flight.body).tailnum, flight.body) for flight in flights[:_MOST]]
    keyed = [(tail_number.encode(), body) for tail_number, body in rows if tail_number is not None]
    half = len(keyed) // 2
    state: State = {}
    with connect(server) as client:
        client.streams.create(_STREAM, partitions=1, config={"keyed": True})
        _write(client, keyed[:half])
        known, _ = _read(client, state)
        _write(client, keyed[half:])
        read, seconds = _read(client, state)
    if state != dict(keyed):
        raise DemoFailed(f"what the consumer of {_STREAM} has is not the newest flight of each aircraft")
    return CaughtUp(known, len(keyed) - half, read, seconds)


def _write(client: Client, keyed: Sequence[tuple[bytes, bytes]]) -> None:
    for first in range(0, len(keyed), _AT_ONCE):
        client.produce(_STREAM, [NewRecord(body, key=key) for key, body in keyed[first : first + _AT_ONCE]])


def _read(client: Client, state: State) -> tuple[int, float]:
    """What changed since the group was here: how many records, and in how many seconds."""
    began_s, read, keys = time.perf_counter(), 0, set[bytes]()
    for snapshot in client.snapshots(_STREAM, group=_GROUP, idle_s=0):
        for record in snapshot:
            state[record.key or b""] = record.value or b""
            keys.add(record.key or b"")
            read += 1
        snapshot.commit()
    if len(keys) != read:
        raise DemoFailed(f"the consumer of {_STREAM} was given {read - len(keys)} aircraft twice")
    return read, time.perf_counter() - began_s
