"""How long a replica waits, in ms. Pure."""

from typing import Final, NamedTuple

__all__ = ["TIMEOUTS", "Timeouts"]


class Timeouts(NamedTuple):
    """`wait_ms`: how long a fetch that has nothing to get is kept (`replica.fetch.wait.max.ms`).

    `retry_ms`: before what was not answered, or refused, is sent again.
    """

    wait_ms: int = 500
    retry_ms: int = 300


TIMEOUTS: Final = Timeouts()
