"""Tables as others see them, and answers that are lost on the way."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from tests.spark.tables.filling import Job, Keyed, rows

from duramen.base.errors import TableStorageFailed
from duramen.spark.tables.port import Declaration
from duramen.spark.tables.statistics import delta_statistics

Declare = Callable[..., Declaration]

LOG: dict[int, list[Keyed]] = {
    0: [(b"k", b'{"a": 1, "country": "DE", "l": [{"x": 1}]}'), (None, b"bad"), (b"k", b'{"a": 2.5, "n": {"y": true}}')],
    1: [(b"q", b'{"a": 7, "country": "\xc3\xa4/% "}'), (b"q", None)],
}


def read_by_others(declaration: Declaration) -> list[dict[str, Any]]:
    location = declaration.storage.location
    if declaration.format == "delta":
        found = pa.table(QueryBuilder().register("flights", DeltaTable(location)).execute("select * from flights"))
    else:
        lake = location.rpartition("/")[0]
        catalog = load_catalog("duramen", type="sql", uri=f"sqlite:///{lake}/duramen-catalog.db")
        found = catalog.load_table(("duramen", "flights")).scan().to_arrow()
    # pyiceberg reads lists that are null as empty ones.
    plain = [{name: None if value == [] else value for name, value in row.items()} for row in found.to_pylist()]
    return sorted(plain, key=lambda row: (row["_stream_partition"], row["_offset"]))


def test_the_format_s_own_readers_read_the_same(declare: Declare) -> None:
    declaration = declare(partition_by=("_date", "country"))
    job = Job.of(declaration)
    job.fill({0: LOG[0][:1]})
    job.fill(LOG, 1)
    job.fill(LOG)
    assert read_by_others(declaration) == rows(job.table)
    job.table.compact()
    assert read_by_others(declaration) == rows(job.table)
    assert len(rows(job.table)) == 5


def test_filters_of_others_find_what_is_there(declare: Declare) -> None:
    declaration = declare(format="delta", upsert=True)
    Job.of(declaration).fill(LOG)
    engine = QueryBuilder().register("flights", DeltaTable(declaration.storage.location))
    for condition, offsets in (
        ("_offset = 2", [2]),
        ("_offset > 2", []),
        ("_timestamp = timestamp '2023-11-14T22:13:20Z'", [2]),
        ("_timestamp > timestamp '2023-11-14T22:13:20Z'", []),
        ("a > 2 and a < 3", [2]),
        ("_stream_partition = 1", []),
    ):
        found = pa.table(engine.execute(f"select _offset from flights where {condition}"))  # noqa: S608
        assert [row["_offset"] for row in found.to_pylist()] == offsets


class AnswerLost(ConnectionError):
    """The request was done, and nobody heard."""


@pytest.mark.parametrize("is_done", [True, False])
def test_an_answer_that_is_lost_is_looked_up(
    declare: Declare, table_format: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: dict[int, list[Keyed]] = {0: [(b"k", b'{"a": 1}'), (None, b"bad")], 1: [(b"q", b'{"a": 7}')]}
    job = Job.of(declare())
    job.fill({0: log[0][:1]})
    work, spans = job.plan(log)
    owner, name = (DeltaTable, "create_write_transaction") if table_format == "delta" else (SqlCatalog, "commit_table")
    real = getattr(owner, name)
    dead_is_done = False

    def lost(*given: Any, **named: Any) -> Any:
        nonlocal dead_is_done
        if not dead_is_done:
            dead_is_done = True
            return real(*given, **named)
        if is_done:
            real(*given, **named)
        raise AnswerLost("the line is dead")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lost)
        if is_done:
            assert job.commit(work, spans, log)
        else:
            with pytest.raises(TableStorageFailed, match="the line is dead"):
                job.commit(work, spans, log)
    job.fill(log)
    assert [(row["_stream_partition"], row["_offset"]) for row in rows(job.table)] == [(0, 0), (0, 1), (1, 0)]


def test_statistics_are_rounded_outwards_and_leave_out_what_has_no_order() -> None:
    out = BytesIO()
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    table = pa.table(
        {
            "whole": pa.array([3, -1, None], pa.int64()),
            "at": pa.array([moment, None, None], pa.timestamp("us", "UTC")),
            "short": pa.array(["b", "a", None], pa.string()),
            "long": pa.array(["b" * 100, "a", None], pa.string()),
            "real": pa.array([1.5, 2.5, None], pa.float64()),
            "nothing": pa.array([None, None, None], pa.int64()),
        }
    )
    pq.write_table(table, out)
    out.seek(0)
    found = delta_statistics(pq.ParquetFile(out).metadata)
    assert found == (
        '{"numRecords": 3, '
        '"minValues": {"whole": -1, "at": "2024-01-02T03:04:05.678Z", "short": "a", "long": "a"}, '
        f'"maxValues": {{"whole": 3, "at": "2024-01-02T03:04:05.679Z", "short": "b", "long": "{"b" * 31}c"}}, '
        '"nullCount": {"whole": 1, "at": 2, "short": 1, "long": 1, "real": 1, "nothing": 3}}'
    )


def test_statistics_have_where_rows_count_however_many_columns_stand_before() -> None:
    names = [*(f"c{number}" for number in range(40)), "_offset", "_commit_offset"]
    out = BytesIO()
    pq.write_table(pa.table({name: pa.array([1, None], pa.int64()) for name in names}), out)
    out.seek(0)
    found = json.loads(delta_statistics(pq.ParquetFile(out).metadata))
    assert found["maxValues"].keys() == {*names[:32], "_offset", "_commit_offset"}
