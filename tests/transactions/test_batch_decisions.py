"""What is decided about the batches of a query, beside a model that remembers everything."""

import contextlib
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt, BatchDiffers, QueryFenced, RequestInvalid
from duramen.codec.attempts import TaskAttempt, attempt_of, home_of, is_reserved, query_name
from duramen.transactions.batch_decisions import (
    AttemptFate,
    AttemptWinner,
    Query,
    begin,
    check_open,
    decide,
    fate_of,
    winners_of,
)
from duramen.transactions.query_records import decode_query, decode_query_key, encode_query, encode_query_key

RUNS = [f"r{number}" for number in range(5)]
BATCHES = range(4)
ATTEMPTS = range(3)
steps = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(RUNS)),
    st.tuples(
        st.just("decide"), st.integers(0, 6), st.sampled_from(BATCHES), st.sampled_from([b"", b"x", b"y"]),
        st.dictionaries(st.integers(0, 2), st.sampled_from(ATTEMPTS), max_size=3),
    ),
)  # fmt: skip


def begun(*runs: str) -> Query:
    query = None
    for run in runs:
        query = begin(query, "q", run, 0) or query
    assert query is not None
    return query


class Model:
    """Remembers every run and every decision that there ever was, and what was said of each attempt."""

    def __init__(self) -> None:
        self.query: Query | None = None
        self.order: list[str] = []
        self.decided: dict[int, tuple[int, bytes, frozenset[AttemptWinner]]] = {}
        self.fates: dict[TaskAttempt, AttemptFate] = {}

    def begin(self, run: str) -> None:
        if run in self.order[:-1]:
            with pytest.raises(QueryFenced):
                begin(self.query, "q", run, 0)
            return
        self.query = begin(self.query, "q", run, 0) or self.query
        if run not in self.order:
            self.order.append(run)

    def decide(self, run: int, batch: int, digest: bytes, winners: dict[int, int]) -> None:
        if self.query is None:
            return
        chosen = frozenset(AttemptWinner(*one) for one in winners.items())
        newest = max(self.decided, default=-1)
        if run != len(self.order):
            with pytest.raises(QueryFenced):
                decide(self.query, run, batch, digest, chosen, 0)
        elif batch > newest:
            self.query = decide(self.query, run, batch, digest, chosen, 0)
            self.decided[batch] = run, digest, chosen
        elif batch == newest and (not digest or self.decided[batch][1] in (b"", digest)):
            assert decide(self.query, run, batch, digest, chosen, 0) is None
        else:
            with pytest.raises(BatchDiffers):
                decide(self.query, run, batch, digest, chosen, 0)

    def look(self) -> None:
        if self.query is None:
            return
        assert self.query.run == len(self.order)
        for run, batch, partition, number in product(range(1, len(self.order) + 1), BATCHES, range(3), ATTEMPTS):
            self._look(self.query, TaskAttempt("q", run, batch, partition, number))

    def _look(self, query: Query, attempt: TaskAttempt) -> None:
        fate, before = fate_of(query, attempt), self.fates.get(attempt, AttemptFate.OPEN)
        if before is AttemptFate.ABORT or (before is AttemptFate.COMMIT and attempt.batch == query.batch):
            assert fate is before, "what is decided of an attempt never changes"
        self.fates[attempt] = fate
        if attempt.batch == query.batch:
            run, _, winners = self.decided[attempt.batch]
            won = run == attempt.run and AttemptWinner(attempt.partition, attempt.attempt) in winners
            assert fate is (AttemptFate.COMMIT if won else AttemptFate.ABORT)
            assert won == (attempt in winners_of(query))
        if fate is AttemptFate.OPEN:
            check_open(query, attempt)
        else:
            with pytest.raises(QueryFenced):
                check_open(query, attempt)


@given(st.lists(steps, max_size=30))
def test_a_batch_is_decided_once_by_the_newest_run_and_fates_never_change(
    given_steps: Sequence[tuple[Any, ...]],
) -> None:
    model = Model()
    for name, *values in given_steps:
        getattr(model, name)(*values)
        model.look()


def test_who_is_fenced_is_told_which_run_writes_now() -> None:
    query = begun("first", "second")
    with pytest.raises(QueryFenced, match=r"query q: run 1 \(first\) is fenced: run 2 \(second\) has begun to write"):
        decide(query, 1, 0, b"", [], 0)
    with pytest.raises(QueryFenced, match=r"run 1 \(first\)"):
        begin(query, "q", "first", 0)
    with pytest.raises(QueryFenced, match="has no run 3"):
        check_open(query, TaskAttempt("q", 3, 0, 0, 0))


def test_a_batch_that_comes_again_with_another_range_is_refused() -> None:
    query = decide(begun("r"), 1, 4, b"\1" * 32, [AttemptWinner(0, 7)], 0)
    assert query is not None
    assert decide(query, 1, 4, b"\1" * 32, [AttemptWinner(0, 8)], 0) is None
    assert decide(query, 1, 4, b"", [], 0) is None
    with pytest.raises(BatchDiffers, match="batch 4 of query q was written with another range"):
        decide(query, 1, 4, b"\2" * 32, [], 0)
    with pytest.raises(BatchDiffers, match="batch 3 of query q comes again, but batch 4 is already decided"):
        decide(query, 1, 3, b"", [], 0)


def test_only_so_many_names_of_runs_are_remembered() -> None:
    query = begun(*(f"r{number}" for number in range(100)))
    assert query.run == 100
    assert len(query.runs) == 32
    with pytest.raises(QueryFenced, match=r"run 1 \(unknown\) is fenced: run 100 \(r99\)"):
        decide(query, 1, 0, b"", [], 0)


# -- names and records --------------------------------------------------------------------------------

attempts = st.builds(
    TaskAttempt, st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=20),
    *[st.integers(0, (1 << 63) - 1)] * 4,
)  # fmt: skip


@given(attempts)
def test_an_attempt_is_found_by_its_name_and_kept_with_its_query(attempt: TaskAttempt) -> None:
    assert is_reserved(attempt.id)
    assert attempt_of(attempt.id) == attempt
    assert home_of(attempt.id) == query_name(attempt.query) == home_of(query_name(attempt.query))


@pytest.mark.parametrize(
    "rest",
    ["", "q", "q/1/2/3", "q/1/2/3/4/5", "q/01/2/3/4", "q/1/2/3/x", "/1/2/3/4", f"q/{1 << 63}/2/3/4", "q/-1/2/3/4"],
)
def test_other_names_with_the_prefix_are_refused(rest: str) -> None:
    id_ = f"__spark/{rest}"
    with pytest.raises(RequestInvalid, match="are those of Spark's tasks"):
        attempt_of(id_)
    assert home_of(id_).startswith("__spark/")


def test_other_ids_are_their_own_home() -> None:
    assert home_of("orders-1") == "orders-1"
    assert not is_reserved("orders-1")
    for query in ("", "a/b", "x" * 257):
        with pytest.raises(RequestInvalid, match="no slash"):
            query_name(query)


queries = st.builds(
    Query, st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=20),
    st.integers(0, 1 << 40), st.lists(st.text(max_size=5), max_size=3).map(tuple), st.integers(-1, 1 << 60),
    st.integers(0, 1 << 40), st.binary(max_size=32),
    st.frozensets(st.builds(AttemptWinner, st.integers(0, 1 << 30), st.integers(0, 1 << 60)), max_size=4),
    st.integers(-1, 1 << 50),
)  # fmt: skip


@given(queries)
def test_a_query_is_read_as_it_was_stored(query: Query) -> None:
    assert decode_query_key(encode_query_key(query.id)) == query.id
    assert decode_query(query.id, encode_query(query)) == query


@given(st.binary(max_size=80))
def test_damaged_records_are_said_to_be(data: bytes) -> None:
    for read in (decode_query_key, lambda found: decode_query("q", found)):
        with contextlib.suppress(BatchCorrupt):
            read(data)
