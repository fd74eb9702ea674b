"""Decisions about the batches of a Spark query, and their effect on each attempt. Pure.

A query's runs have increasing numbers. Only its newest run decides, each batch once and in increasing order. The
decision names the winning attempts, which are committed; all other attempts of the batch, of earlier batches and of
older runs are aborted. A decision never changes: therefore the next batch is decided only when all winning attempts of
the previous one are committed.

Each function takes the query's state and returns the new state, or None if nothing changes.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final, NamedTuple

from duramen.base.errors import BatchDiffers, QueryFenced
from duramen.codec.attempts import TaskAttempt

__all__ = [
    "AttemptFate",
    "AttemptWinner",
    "Query",
    "begin",
    "check_open",
    "decide",
    "fate_of",
    "is_decided",
    "winners_of",
]

_RUNS_KEPT: Final = 32
"""Names of runs that are remembered: an older run that writes again is known by its name."""


class AttemptFate(Enum):
    """The outcome of an attempt."""

    OPEN = "open"
    COMMIT = "commit"
    ABORT = "abort"


class AttemptWinner(NamedTuple):
    """Of the attempts of a partition the one whose records count."""

    partition: int
    attempt: int


class Query(NamedTuple):
    """A query: its newest runs, of which the last has the number `run`, and the newest batch that is decided.

    `batch` is -1 before the first decision; `batch_run` is the number of the run that decided. `digest` identifies the
    batch's range, empty if that is unknown. `updated_ms` in ms since 1970.
    """

    id: str
    run: int = 0
    runs: tuple[str, ...] = ()
    batch: int = -1
    batch_run: int = 0
    digest: bytes = b""
    winners: frozenset[AttemptWinner] = frozenset()
    updated_ms: int = -1


def begin(current: Query | None, id_: str, run: str, now_ms: int) -> Query | None:
    """A run writes: the first time it becomes the newest. Raises QueryFenced where a newer one has begun."""
    found = current or Query(id_)
    if found.runs and found.runs[-1] == run:
        return None
    if run in found.runs:
        older = found.run - (len(found.runs) - 1 - found.runs.index(run))
        raise _fenced(found, older, run)
    return found._replace(run=found.run + 1, runs=(*found.runs, run)[-_RUNS_KEPT:], updated_ms=now_ms)


def check_comes(query: Query | None, batch: int) -> None:
    """Raise BatchDiffers where one behind a batch is decided: that is never asked by mistake."""
    if query is not None and batch < query.batch:
        raise BatchDiffers(
            f"batch {batch} of query {query.id} comes again, but batch {query.batch} is already decided: the checkpoint"
            " is older than the written records"
        )


def is_decided(query: Query, batch: int) -> bool:
    """Whether a batch is decided. Raises as `check_comes`."""
    check_comes(query, batch)
    return batch == query.batch


def decide(
    current: Query, run: int, batch: int, digest: bytes, winners: Collection[AttemptWinner], now_ms: int
) -> Query | None:
    """The decision on a batch, or None if it is decided already, for the same range.

    The caller ensures that the winners are open, and that those of the batch before are committed. Raises QueryFenced
    for a run that is not the newest, BatchDiffers for a batch that was decided with another range.
    """
    if run != current.run:
        raise _fenced(current, run, _name(current, run))
    if is_decided(current, batch):
        _check_digest(current, digest)
        return None
    return current._replace(batch=batch, batch_run=run, digest=digest, winners=frozenset(winners), updated_ms=now_ms)


def _check_digest(query: Query, digest: bytes) -> None:
    """Raise BatchDiffers where the newest decided batch is known to have another range."""
    if query.digest and digest and query.digest != digest:
        raise BatchDiffers(
            f"batch {query.batch} of query {query.id} was written with another range of its sources (digest"
            f" {query.digest.hex()[:16]}, now {digest.hex()[:16]}): the checkpoint has lost an entry of its offset log"
        )


def fate_of(query: Query | None, attempt: TaskAttempt) -> AttemptFate:
    """The outcome of an attempt, as far as it is decided."""
    if query is None:
        return AttemptFate.OPEN
    if attempt.batch == query.batch and attempt.run == query.batch_run:
        return (
            AttemptFate.COMMIT
            if AttemptWinner(attempt.partition, attempt.attempt) in query.winners
            else AttemptFate.ABORT
        )
    if attempt.batch <= query.batch or attempt.run < query.run:
        return AttemptFate.ABORT
    return AttemptFate.OPEN


def check_open(query: Query | None, attempt: TaskAttempt) -> None:
    """Raise QueryFenced unless an attempt may write: of the newest run, and its batch is not decided."""
    if query is None or attempt.run > query.run:
        raise QueryFenced(f"query {attempt.query} has no run {attempt.run}")
    if attempt.run < query.run:
        raise _fenced(query, attempt.run, _name(query, attempt.run))
    if fate_of(query, attempt) is not AttemptFate.OPEN:
        raise QueryFenced(f"batch {attempt.batch} of query {attempt.query} is decided: nothing more is written to it")


def winners_of(query: Query) -> list[TaskAttempt]:
    """The attempts that won the newest decided batch."""
    return [TaskAttempt(query.id, query.batch_run, query.batch, *winner) for winner in sorted(query.winners)]


def _name(query: Query, run: int) -> str:
    at = len(query.runs) - 1 - (query.run - run)
    return query.runs[at] if 0 <= at < len(query.runs) else "unknown"


def _fenced(query: Query, run: int, name: str) -> QueryFenced:
    return QueryFenced(
        f"query {query.id}: run {run} ({name}) is fenced:"
        f" run {query.run} ({_name(query, query.run)}) has begun to write since"
    )
