"""Two jobs on one table that are killed anywhere and go on: in the end each record is there exactly once."""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.tables.filling import Job, Keyed, rows

from duramen.base.errors import TableConflict
from duramen.spark.tables.port import DataFile, Declaration, LakeTable, Storage, TableSpan
from duramen.spark.tables.rounds import Work

VALUES = (
    b'{"a": 1}', b'{"a": 2.5}', b'{"a": "text"}', b'{"b": {"c": true}}', b'{"b": {"d": [1]}}', b'{"b": 7}',
    b"nonsense", b"", None,
)  # fmt: skip
KEYS = (b"one", b"two", b"three", None)

keyed = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES))
appends = st.tuples(st.just("append"), st.integers(0, 1), st.lists(keyed, min_size=1, max_size=6))
plans_made = st.tuples(st.just("plan"), st.integers(0, 1), st.integers(1, 8))
commits = st.tuples(
    st.just("commit"),
    st.integers(0, 1),
    st.sampled_from(["whole", "whole", "before dead", "after dead", "before table", "after table", "not evolved"]),
)
compactions = st.tuples(st.just("compact"), st.integers(0, 1), st.none())
rounds = st.tuples(plans_made, commits).map(lambda both: [both[0], ("commit", both[0][1], both[1][2])])
programs = st.lists(
    st.one_of(
        appends.map(lambda step: [step]),
        st.tuples(appends, rounds).map(lambda both: [both[0], *both[1]]),
        st.tuples(appends, rounds).map(lambda both: [both[0], *both[1]]),
        st.one_of(plans_made, commits, compactions).map(lambda step: [step]),
    ),
    max_size=8,
).map(lambda pieces: [step for piece in pieces for step in piece])


class Killed(Exception):
    """A job that is no more."""


class Mortal:
    """A table whose caller is killed before or after a commit, or before columns are added."""

    def __init__(self, table: LakeTable, name: str, death: str) -> None:
        self._table = table
        self._name = name
        self._death = death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def evolve(self, schema: Any) -> None:
        if self._death == "not evolved":
            raise Killed
        self._table.evolve(schema)

    def commit(
        self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Collection[str] = (), newest: int = -1
    ) -> None:
        if self._death == f"before {self._name}":
            raise Killed
        self._table.commit(files, spans, removed, newest)
        if self._death == f"after {self._name}":
            raise Killed


def expected(log: Mapping[int, Sequence[Keyed]], *, upsert: bool) -> dict[tuple[int, int], Keyed]:
    """Rows by partition and offset."""
    found: dict[tuple[int, int], Keyed] = {}
    newest: dict[tuple[int, bytes], int] = {}
    for partition, records in log.items():
        for offset, (key, value) in enumerate(records):
            if upsert and key is not None:
                found.pop((partition, newest.get((partition, key), -1)), None)
                newest[partition, key] = offset
            if not upsert or (key is not None and value is not None):
                found[partition, offset] = (key, value)
    return found


def run(declaration: Declaration, program: Sequence[tuple[str, int, Any]]) -> None:
    log: dict[int, list[Keyed]] = {}
    Job.of(declaration)
    jobs = [Job.of(declaration), Job.of(declaration)]
    plans: list[tuple[Work, list[TableSpan]] | None] = [None, None]
    for what, which, more in program:
        if what == "append":
            log.setdefault(which, []).extend(more)
        elif what == "plan":
            plans[which] = jobs[which].plan(log, more)
        elif what == "compact":
            jobs[which].table.compact()
        elif (plan := plans[which]) is not None:
            plans[which] = None
            table, dead = jobs[which]
            mortal: Any = Job(Mortal(table, "table", more), Mortal(dead, "dead", more))
            try:
                mortal.commit(*plan, log)
            except (Killed, TableConflict):
                continue
    jobs[0].fill(log)
    found = rows(jobs[1].table)
    assert jobs[1].table.ends() == {partition: len(records) for partition, records in log.items()}
    assert {(row["_stream_partition"], row["_offset"]): (row["_key"], row["_value"]) for row in found} == expected(
        log, upsert=declaration.upsert
    )
    assert len(found) == len(expected(log, upsert=declaration.upsert))
    dead_rows = rows(jobs[1].dead)
    assert len({(row["_stream_partition"], row["_offset"]) for row in dead_rows}) == len(dead_rows)
    if not declaration.upsert:
        assert [(row["_stream_partition"], row["_offset"], row["_error"]) for row in found if row["_error"]] == [
            (row["_stream_partition"], row["_offset"], row["_reason"]) for row in dead_rows
        ]
        return
    reasons = {(row["_stream_partition"], row["_offset"]): row["_reason"] for row in dead_rows}
    for partition, records in log.items():
        for offset, (key, _) in enumerate(records):
            assert (reasons.get((partition, offset), "").startswith("no key")) == (key is None)
    assert all(reasons.get((row["_stream_partition"], row["_offset"])) == row["_error"] for row in found)


@pytest.mark.parametrize("upsert", [False, True])
@given(programs)
@settings(max_examples=examples(40))
@pytest.mark.variants(1)
def test_delta(upsert: bool, program: Sequence[tuple[str, int, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        declaration = Declaration(
            "delta", Storage(f"{directory}/flights"), "flights", "id", decode="json", upsert=upsert
        )
        run(declaration, program)


@given(programs)
@settings(max_examples=examples(15))
def test_iceberg(program: Sequence[tuple[str, int, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(Declaration("iceberg", Storage(f"{directory}/flights"), "flights", "id", decode="json"), program)
