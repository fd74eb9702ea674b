"""Transactional ids of Spark task attempts, and of the query whose batches they belong to. Pure.

    query    __spark/<query>
    attempt  __spark/<query>/<run>/<batch>/<partition>/<attempt>

The prefix is reserved. The decision on a batch ends such a transaction, not the producer that writes in it. All ids of
a query belong to the coordinator partition of the query's own name, so that one log orders their changes.
"""

from typing import Final, NamedTuple

from duramen.base.errors import RequestInvalid

__all__ = ["PREFIX", "TaskAttempt", "attempt_of", "find_attempt", "home_of", "is_reserved", "query_name"]

PREFIX: Final = "__spark/"

_LARGEST: Final = 1 << 63
_LONGEST_QUERY: Final = 256


class TaskAttempt(NamedTuple):
    """An attempt of a task: to write one partition of one batch, in one run of a query."""

    query: str
    run: int
    batch: int
    partition: int
    attempt: int

    @property
    def id(self) -> str:
        """Its transactional id."""
        return f"{PREFIX}{self.query}/{self.run}/{self.batch}/{self.partition}/{self.attempt}"


def is_reserved(id_: str) -> bool:
    """Whether a transactional id has the reserved prefix."""
    return id_.startswith(PREFIX)


def query_name(query: str) -> str:
    """The key of a query's record. Raises RequestInvalid for an invalid id."""
    if not 0 < len(query) <= _LONGEST_QUERY or "/" in query:
        raise RequestInvalid(f"a query's id has 1 to {_LONGEST_QUERY} characters and no slash, unlike {query!r}")
    return PREFIX + query


def find_attempt(id_: str) -> TaskAttempt | None:
    """The attempt with that transactional id; None where it names none."""
    query, *numbers = id_.removeprefix(PREFIX).split("/")
    counted = len(numbers) == len(TaskAttempt._fields) - 1 and all(
        part.isascii() and part.isdigit() for part in numbers
    )
    if not query or not counted:
        return None
    run, batch, partition, attempt = map(int, numbers)
    found = TaskAttempt(query, run, batch, partition, attempt)
    return found if found.id == id_ and max(run, batch, partition, attempt) < _LARGEST else None


def attempt_of(id_: str) -> TaskAttempt:
    """The attempt with a transactional id that is reserved. Raises RequestInvalid where it names none."""
    found = find_attempt(id_)
    if found is not None:
        return found
    raise RequestInvalid(f"transactional ids that begin with {PREFIX} are those of Spark's tasks; {id_!r} is not one")


def home_of(id_: str) -> str:
    """The name whose hash determines the partition of an id: that of its query, or the id itself."""
    if not is_reserved(id_):
        return id_
    return PREFIX + id_.removeprefix(PREFIX).partition("/")[0]
