"""What every simulation under seeds is held to: no promise broken, the same trace again, planted bugs found."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from tests.sim.planted import Bug, planted

__all__ = ["Seeded", "add_up", "first_that_finds", "same_traces"]

Total = TypeVar("Total")


class Seeded(Protocol):
    """One run, all of which follows from its seed."""

    @property
    def trace(self) -> Sequence[str]:
        """What happened, where it was asked to write that."""

    def run(self) -> tuple[int, ...]:
        """Raises AssertionError where a promise is broken. Returns how often what happened."""


def add_up(simulation: Callable[[int], Seeded], make: Callable[[Iterable[int]], Total], seeds: range) -> Total:
    """Run them all; `make` makes totals of numbers. A failure names its seed."""
    totals: Sequence[int] | None = None
    for seed in seeds:
        try:
            done = simulation(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        totals = done if totals is None else [one + more for one, more in zip(totals, done, strict=True)]
    return make(totals or ())


def first_that_finds(
    bug: Bug, simulation: Callable[[int], Seeded], seeds: range, *, stuck: type[Exception]
) -> int | None:
    """The first seed that breaks a promise with the bug; that nothing goes on any more (`stuck`) is not enough."""
    with planted(bug):
        for seed in seeds:
            try:
                simulation(seed).run()
            except stuck:
                continue
            except AssertionError:
                return seed
    return None


def same_traces(traced: Callable[[int], Seeded], seed: int, *, at_least: int) -> None:
    """Two runs of a seed write the same, and another seed writes something else."""
    first, again, other = (traced(number) for number in (seed, seed, seed + 1))
    for one in (first, again, other):
        one.run()
    assert len(first.trace) > at_least
    assert first.trace == again.trace
    assert first.trace != other.trace
