"""The duration of the targets' measurements. Data only."""

from typing import Final, NamedTuple

__all__ = ["FULL", "Effort", "scaled"]


class Effort(NamedTuple):
    """Rounds in which systems take turns, and what each has of everything.

    Seconds of a paced and of a full load; records that stream, in all for memory, and for Spark; starts of a node.
    """

    rounds: int
    paced_s: float
    full_s: float
    small_records: int
    large_records: int
    memory_records: int
    starts: int
    spark_records: int


FULL: Final = Effort(5, 4.0, 2.0, 1_000_000, 300_000, 3_000_000, 5, 5_000_000)
"""Twenty seconds at 50 a second are a thousand samples: just what a p99 needs."""


def scaled(rounds: int, scale: float) -> Effort:
    """As FULL, with so many rounds, each longer or shorter by a factor."""
    return Effort(
        rounds,
        FULL.paced_s * scale,
        FULL.full_s * scale,
        max(1, int(FULL.small_records * scale)),
        max(1, int(FULL.large_records * scale)),
        max(3, int(FULL.memory_records * scale)),
        max(1, round(FULL.starts * min(1.0, scale))),
        max(1, int(FULL.spark_records * scale)),
    )
