"""The tables that SQL reads, found where Spark's grammar has relations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.spark.pipelines.definition.references import Reference, references


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM flights", ["flights"]),
        ("select a.x from flights a, airlines b where a.c = b.c", ["flights", "airlines"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN `c d` USING (x)", ["a", "b", "c d"]),
        ("SELECT * FROM (SELECT * FROM inner_one) t, other", ["inner_one", "other"]),
        ("SELECT * FROM (a JOIN b ON a.x = b.x)", ["a", "b"]),
        ("WITH mine AS (SELECT * FROM a), two(x, y) AS (SELECT 1, 2) SELECT * FROM mine JOIN two JOIN b", ["a", "b"]),
        ("SELECT * FROM a WHERE x IN (SELECT x FROM b) AND EXISTS (SELECT 1 FROM c)", ["a", "b", "c"]),
        ("SELECT count(*) AS flights, hourly FROM a GROUP BY hourly, flights", ["a"]),
        ("SELECT x IS DISTINCT FROM y FROM a", ["a"]),
        ("SELECT * FROM range(10), lake.table, a", ["a"]),
        ("SELECT 'FROM no' || \"FROM neither\" -- FROM comment\n /* FROM this */ FROM a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(xs) t AS x", ["a"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM b", ["a", "b"]),
        ("FROM a SELECT x", ["a"]),
        ("SELECT extract(YEAR FROM at), trim(BOTH 'x' FROM y) FROM a", ["a"]),
        ("SELECT * FROM a JOIN b ON f(a.x, b.x) = 1, c JOIN d USING (x, y), e WHERE x", ["a", "b", "c", "d", "e"]),
        ("SELECT 1", []),
        ("SELECT * FROM", []),
        ("))((", []),
    ],
)
def test_tables(sql: str, names: list[str]) -> None:
    assert [one.name for one in references(sql)] == names


def test_places() -> None:
    assert references("SELECT *\n  FROM a\n  JOIN bb") == [Reference("a", 2, 7), Reference("bb", 3, 7)]


@given(st.text(alphabet="abFROM JOINselect(),.`'\"-/*\n", max_size=80))
def test_any_text_is_read(sql: str) -> None:
    for name, line, column in references(sql):
        begun = sql.splitlines(keepends=True)[line - 1][column:] if name else "``"
        assert begun.lstrip("`").startswith(name) or "``" in sql


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), st.sampled_from([", ", " JOIN ", "\nJOIN "]))
def test_a_list_of_relations_in_and_out_of_parentheses(names: list[str], between: str) -> None:
    sql = between.join(names).join(["FROM (", ") WHERE x = 1, d"])
    assert [one.name for one in references(sql)] == names
