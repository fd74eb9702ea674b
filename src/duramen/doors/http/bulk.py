"""Bulk requests, whose rows come as JSON, NDJSON or Arrow: rows that fail are named, and the others go on."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeVar

from duramen.base.errors import InputInvalid
from duramen.codec.bulk_names import RowProblem, Rows
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.serving.rows import BodyRows
from duramen.doors.http.snapshots.reads import run_job
from duramen.doors.http.types.inventory import CreatedInfo, FailedName, MovedInfo
from duramen.doors.problems import problem_of
from duramen.inventory.names import NamedProblem

__all__ = ["create_all", "failed_names", "lacking_names", "list_failed", "rows_of_body"]

T = TypeVar("T")

_NAMES_AT_ONCE: Final = 20_000  # before others get their turn: some milliseconds
_MOST_FAILED: Final = 10_000
"""Failures of rows that are listed."""

_Create = Callable[[Sequence[str], Callable[[Any], None]], object]


def failed_names(
    call: Call, names: Iterable[str], numbers: Iterable[int], problems: Sequence[NamedProblem]
) -> list[FailedName]:  # fmt: skip
    """The rows whose names have problems; `numbers` are those of all rows."""
    if not problems:
        return []
    where, reasons = call.request.url.path, {problem.name: problem.error for problem in problems}
    return [
        FailedName(name, problem_of(reasons[name], where), row)
        for name, row in zip(names, numbers, strict=True)
        if name in reasons
    ]


def lacking_names(call: Call, problems: Iterable[RowProblem]) -> list[FailedName]:
    """The rows that do not fit, which have no name."""
    where = call.request.url.path
    return [FailedName("", problem_of(InputInvalid(why), where), row) for row, why in problems]


def list_failed(info: CreatedInfo | MovedInfo, failed: Iterable[FailedName], *, all_: bool) -> None:
    """Count failures, and list the first 10,000 of a body, or all, in the order of their rows."""
    some = sorted(failed, key=lambda one: one.row)
    info.failures += len(some)
    info.failed += some if all_ else some[: _MOST_FAILED - len(info.failed)]


async def create_all(call: Call, names: Sequence[str] | BodyRows[str], create: _Create) -> CreatedInfo:
    """Create names, some thousands at a time. Names that fail, and rows without a name, are in the result."""
    info = CreatedInfo(0, 0, [], 0, "")
    async with aclosing(rows_of_body(call, names)) as found:
        async for rows in found:
            failed = lacking_names(call, rows.problems)
            for at in range(0, len(rows.found), _NAMES_AT_ONCE):
                some, numbers = rows.found[at : at + _NAMES_AT_ONCE], rows.numbers[at : at + _NAMES_AT_ONCE]
                made: CreatedNames = await call_back(partial(create, some))
                info.created, info.existing = info.created + made.created, info.existing + made.existing
                failed += failed_names(call, some, numbers, made.problems)
            list_failed(info, failed, all_=not isinstance(names, BodyRows))
    info.position = call.broker.inventory.position
    return info


async def rows_of_body(call: Call, body: Sequence[T] | BodyRows[T]) -> AsyncGenerator[Rows[T], None]:
    """The rows of a body, some at a time; entries of JSON are numbered from 1 on."""
    if isinstance(body, BodyRows):
        decoder = await run_job(call.broker.store, body.open)
        async with aclosing(body.read(decoder)) as found:
            async for rows in found:
                yield rows
    else:
        yield Rows(body, range(1, len(body) + 1), [], len(body))
