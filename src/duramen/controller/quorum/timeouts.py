"""How long a replica waits, in ms. Pure."""

from typing import Final, NamedTuple

__all__ = ["TIMEOUTS", "Timeouts"]


class Timeouts(NamedTuple):
    """`election_ms`: without a leader before it stands, and again as much by chance; as a candidate for answers.

    `fetch_ms`: without an answer of the leader before a follower stands; `retry_ms`: before a message is sent again;
    `wait_ms`: how long the leader keeps a fetch that has nothing to get; `desertion_ms`: without fetches of a majority
    before the leader resigns.
    """

    election_ms: int = 1000
    fetch_ms: int = 2000
    retry_ms: int = 300
    wait_ms: int = 500
    desertion_ms: int = 3000


TIMEOUTS: Final = Timeouts()
"""Apache Kafka's, where it has them."""
