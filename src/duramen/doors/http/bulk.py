"""Bulk creation of tenants, namespaces and topics from JSON, NDJSON or Arrow."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from duramen.base.errors import InputInvalid
from duramen.codec.bulk_names import NameRows
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.serving.rows import BodyRows
from duramen.doors.http.snapshots.reads import run_job
from duramen.doors.http.types.inventory import CreatedInfo, FailedName
from duramen.doors.problems import problem_of
from duramen.inventory.names import NamedProblem

__all__ = ["create_all", "failed_names"]

_NAMES_AT_ONCE: Final = 20_000  # before others get their turn: some milliseconds
_MOST_FAILED: Final = 10_000
"""Failures of rows that are listed."""

_Create = Callable[[Sequence[str], Callable[[Any], None]], object]


def failed_names(call: Call, problems: Iterable[NamedProblem]) -> list[FailedName]:
    """Names that failed, with their problems."""
    where = call.request.url.path
    return [FailedName(problem.name, problem_of(problem.error, where)) for problem in problems]


async def create_all(call: Call, names: Sequence[str] | BodyRows, create: _Create) -> CreatedInfo:
    """Create names, some thousands at a time. Names that fail, and rows without a name, are in the result."""
    info, most = CreatedInfo(0, 0, [], 0, ""), _MOST_FAILED if isinstance(names, BodyRows) else None
    async with aclosing(_rows(call, names)) as found:
        async for rows in found:
            for at in range(0, len(rows.names), _NAMES_AT_ONCE):
                made: CreatedNames = await call_back(partial(create, rows.names[at : at + _NAMES_AT_ONCE]))
                info.created, info.existing = info.created + made.created, info.existing + made.existing
                info.failed += failed_names(call, made.problems)
                info.failures += len(made.problems)
            where = call.request.url.path
            info.failed += [FailedName("", problem_of(InputInvalid(why), where), row) for row, why in rows.problems]
            info.failures += len(rows.problems)
            del info.failed[most if most is not None else len(info.failed) :]
    info.position = call.broker.inventory.position
    return info


async def _rows(call: Call, names: Sequence[str] | BodyRows) -> AsyncGenerator[NameRows, None]:
    if isinstance(names, BodyRows):
        decoder = await run_job(call.broker.store, names.open)
        async with aclosing(names.read(decoder)) as found:
            async for rows in found:
                yield rows
    else:
        yield NameRows(list(names), [], len(names))
