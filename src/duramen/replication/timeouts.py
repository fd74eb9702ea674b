"""Timeouts of a replica, in ms. Pure."""

from typing import Final, NamedTuple

__all__ = ["TIMEOUTS", "ReplicaTimeouts"]


class ReplicaTimeouts(NamedTuple):
    """`wait_ms`: how long a fetch that has nothing to get is kept (`replica.fetch.wait.max.ms`), or comes too early.

    Sixteen times as long each time that there was nothing, up to `idle_wait_ms`: partitions that nobody writes to cost
    next to nothing.
    `silence_ms`: how late an answer to a fetch may be before that is sent again, twice as late each time: what is lost
    on a connection is asked for anew when there is another one, and a node that is busy is only late.
    `retry_ms`: before what could not be sent is sent again, a proposal is made again that was not answered, or looked
    at again that was refused;
    `backoff_ms`: before a fetch that was refused is sent again (`replica.fetch.backoff.ms`), short, because after an
    election some are refused for want of news, and twice as long each time up to `wait_ms`; `gone_ms`: how long there
    may be no connection to a replica before it is out of sync; `window_ms`: a window in which latencies are compared.
    """

    wait_ms: int = 500
    idle_wait_ms: int = 60_000
    silence_ms: int = 3_000
    retry_ms: int = 300
    backoff_ms: int = 5
    gone_ms: int = 500
    window_ms: int = 1_000


TIMEOUTS: Final = ReplicaTimeouts()
