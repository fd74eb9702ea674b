"""Timeouts of a replica, in ms. Pure."""

from typing import Final, NamedTuple

__all__ = ["TIMEOUTS", "ReplicaTimeouts"]


class ReplicaTimeouts(NamedTuple):
    """Timeouts in ms. `wait_ms`: how long a fetch without new records is parked (`replica.fetch.wait.max.ms`).

    A fetch that comes too early waits as long. Each time without records multiplies it by sixteen, up to
    `idle_wait_ms`: idle partitions cost almost nothing. `silence_ms`: how late a response to a fetch may be before the
    fetch is sent again; this doubles each time. Fetches that are lost with a connection are sent again on the next one,
    and a busy node is only late. `retry_ms`: time before a lost message or an unanswered proposal is sent again, or a
    refused proposal is reconsidered. `backoff_ms`: time before a refused fetch is sent again
    (`replica.fetch.backoff.ms`). It is short, because some fetches after an election are refused until the metadata
    arrives; it doubles each time, up to `wait_ms`. `gone_ms`: how long a replica may have no connection before it is
    out of sync. `window_ms`: a window in which latencies are compared.
    """

    wait_ms: int = 500
    idle_wait_ms: int = 60_000
    silence_ms: int = 3_000
    retry_ms: int = 300
    backoff_ms: int = 5
    gone_ms: int = 500
    window_ms: int = 1_000


TIMEOUTS: Final = ReplicaTimeouts()
