"""What both formats promise of a table."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.tables.filling import Job, Keyed, records, rows

from duramen.base.errors import OptionInvalid, TableConflict, TableForeign, TableUnsupported
from duramen.spark.tables.port import Declaration, Storage, TableSpan
from duramen.spark.tables.registry import find_table, open_dead_letters, open_table
from duramen.spark.tables.rounds import commit_round, plan_round, translate
from duramen.spark.tables.schemas import decoded_fields, saved
from duramen.spark.tables.storage import TableLocation

Declare = Callable[..., Declaration]


def keyed(*values: bytes | None) -> list[Keyed]:
    return [(b"key", value) for value in values]


def later_ms() -> int:
    """A time after everything that was written so far."""
    return time.time_ns() // 1_000_000 + 60_000


def test_records_are_rows_with_their_places_and_decoded_columns(declare: Declare) -> None:
    job = Job.of(declare())
    job.fill({0: keyed(b'{"delay": 3}', None), 2: keyed(b'{"from": {"airport": "JFK"}}')})
    found = rows(job.table)
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in found] == [
        (0, 0, b'{"delay": 3}'),
        (0, 1, None),
        (2, 0, b'{"from": {"airport": "JFK"}}'),
    ]
    assert [(row["delay"], row["from"], row["_error"]) for row in found] == [
        (3, None, None),
        (None, None, None),
        (None, {"airport": "JFK"}, None),
    ]
    assert job.table.ends() == {0: 2, 2: 1}
    assert found[0]["_key"] == b"key"
    assert found[0]["_headers"] is None
    statistics = job.table.statistics()
    assert (statistics.files, statistics.rows) == (2, 3)
    assert statistics.size_bytes > 0
    assert statistics.last_commit_ms is not None


def test_an_empty_table_has_no_ends_and_no_rows(declare: Declare) -> None:
    table = open_table(declare())
    assert table.ends() == {}
    assert table.scan() == []
    assert table.statistics()[:3] == (0, 0, 0)


def test_headers_and_any_first_offset(declare: Declare) -> None:
    table = open_table(declare(decode="none"))
    batch = records(1, 70, keyed(b"x"))
    headers = pa.array(
        [[{"key": "trace", "value": b"7"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    work, span = plan_round(table), TableSpan(1, 50, 90)
    written = translate(work, span, [batch.append_column("headers", headers)])
    assert commit_round(table, None, work, [written], [span])
    assert rows(table)[0]["_headers"] == [{"key": "trace", "value": b"7"}]
    assert table.ends() == {1: 90}


def test_what_does_not_follow_the_end_is_refused(declare: Declare) -> None:
    one, two = Job.of(declare()), Job.of(declare())
    log = {0: keyed(b'{"a": 1}', b'{"a": 2}')}
    work, spans = two.plan(log)
    one.fill(log)
    with pytest.raises(TableConflict, match="partition 0 up to offset 2, so offsets 0 to 2 cannot be added"):
        two.commit(work, spans, log)
    with pytest.raises(TableConflict):
        one.table.commit([], [TableSpan(0, 1, 5)])
    with pytest.raises(TableConflict):
        one.table.commit([], [TableSpan(0, 3, 5)])
    assert one.table.ends() == {0: 2}
    assert [row["a"] for row in rows(two.table)] == [1, 2]


def test_spans_without_records_move_the_ends(declare: Declare) -> None:
    table = open_table(declare())
    table.commit([], [TableSpan(0, 0, 5), TableSpan(3, 9, 10)])
    table.commit([], [TableSpan(0, 5, 6)])
    assert table.ends() == {0: 6, 3: 10}


def test_bad_records_are_dead_letters_too(declare: Declare) -> None:
    job = Job.of(declare())
    job.fill({0: keyed(b'{"a": 1}', b"nonsense", b'{"a": "text"}')})
    assert [row["_error"] is None for row in rows(job.table)] == [True, False, False]
    dead = rows(job.dead)
    assert [(row["_topic"], row["_stream_partition"], row["_offset"], row["_key"]) for row in dead] == [
        ("flights", 0, 1, b"key"),
        ("flights", 0, 2, b"key"),
    ]
    assert dead[0]["_reason"].startswith("not a JSON object")
    assert dead[1]["_reason"] == "does not fit the columns: Expected `int | null`, got `str` - at `$.a`"
    assert dead[1]["_value"] == b'{"a": "text"}'
    assert job.dead.ends() == job.table.ends()


def test_numbers_that_no_column_has_room_for_are_dead_letters_and_change_no_column(declare: Declare) -> None:
    job = Job.of(declare())
    large = [b'{"a": %s}' % number for number in (b"9" * 20, b"9" * 400, b"9" * 5000, b"1e400")]
    job.fill({0: keyed(large[0], b'{"a": 1}', *large[1:]), 1: keyed(*large)})
    job.fill({0: keyed(large[0], b'{"a": 1}', *large[1:], b'{"a": 2, "b": "x"}'), 1: keyed(*large)})
    assert [field.type for field in job.table.schema() if field.name in {"a", "b"}] == [pa.int64(), pa.string()]
    assert sorted(row["a"] for row in rows(job.table) if row["_error"] is None) == [1, 2]
    assert sorted((row["_stream_partition"], row["_offset"]) for row in rows(job.dead)) == [
        *((0, offset) for offset in (0, 2, 3, 4)),
        *((1, offset) for offset in range(4)),
    ]


def test_columns_are_added_also_inside_of_others(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(b'{"a": 1, "n": {"x": 1}, "l": [{"x": 1}]}')}
    job.fill(log)
    log[0] += keyed(b'{"b": true, "n": {"y": "z"}, "l": [{"y": 2.5}], "a": null}', b'{"a": 2}')
    job.fill(log)
    found = rows(job.table)
    assert [row["a"] for row in found] == [1, None, 2]
    assert [row["b"] for row in found] == [None, True, None]
    assert [row["n"] for row in found] == [{"x": 1, "y": None}, {"x": None, "y": "z"}, None]
    assert [row["l"] for row in found] == [[{"x": 1, "y": None}], [{"x": None, "y": 2.5}], None]
    assert [row["_error"] for row in found] == [None, None, None]
    job.table.compact()
    assert rows(job.table) == found


@pytest.mark.variants(1)
def test_partitions_that_disagree_on_a_new_column_are_done_again(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(b'{"a": 1, "n": {"x": 1}}'), 1: keyed(b'{"a": 1.5, "n": {"x": 0.5}}'), 2: keyed(b'{"a": "x"}')}
    work, spans = job.plan(log)
    assert not job.commit(work, spans, log)
    assert job.table.ends() == {}
    job.fill(log)
    found = rows(job.table)
    assert [row["a"] for row in found] == [1.0, 1.5, None]
    assert [row["n"] for row in found] == [{"x": 1.0}, {"x": 0.5}, None]
    assert [row["_offset"] for row in rows(job.dead)] == [0]


def test_declared_columns_are_wide_and_no_others_come(declare: Declare) -> None:
    schema = saved(pa.schema([("a", pa.int32()), ("f", pa.float32()), ("when", pa.timestamp("us", "UTC"))]))
    job = Job.of(declare(schema=schema))
    job.fill({0: keyed(b'{"a": 5000000000, "f": 0.1, "b": 1, "when": "2024-01-02T03:04:05Z"}')})
    assert [str(field.type) for field in decoded_fields(job.table.schema())] == [
        "int64",
        "double",
        "timestamp[us, tz=UTC]",
    ]
    row = rows(job.table)[0]
    assert (row["a"], row["f"], row["when"].isoformat()) == (5000000000, 0.1, "2024-01-02T03:04:05+00:00")
    assert "b" not in row
    with pytest.raises(OptionInvalid, match="_offset, first name"):
        open_table(declare(schema=saved(pa.schema([("_offset", pa.int64()), ("first name", pa.string())]))))


def test_a_table_is_partitioned_by_day_and_columns(declare: Declare) -> None:
    job = Job.of(declare(partition_by=("_date", "country")))
    log = {0: keyed(b'{"country": "DE/\xc3\xa4 %"}', b'{"country": "FR"}', b'{"country": "FR", "x": 1}', b"{}")}
    job.fill(log)
    files = job.table.scan()
    assert sorted(str(dict(file.values)["country"]) for file in files) == ["DE/ä %", "FR", "None"]
    assert {dict(file.values)["_date"] for file in files} == {"2023-11-14"}
    found = rows(job.table)
    assert [row["country"] for row in found] == ["DE/ä %", "FR", "FR", None]
    assert found[0]["_date"].isoformat() == "2023-11-14"
    log[0] += keyed(b'{"country": "FR", "x": 2}')
    job.fill(log)
    job.table.compact()
    assert len(job.table.scan()) == 3
    assert [row["country"] for row in rows(job.table)] == ["DE/ä %", "FR", "FR", None, "FR"]


@pytest.mark.parametrize("column", ["nothing here", "_offset", "_value", "_Date", "n"])
def test_columns_that_it_cannot_be_partitioned_by(declare: Declare, column: str) -> None:
    schema = saved(pa.schema([("n", pa.struct([("x", pa.int64())]))]))
    with pytest.raises(TableUnsupported, match=f"cannot be partitioned by '{column}'"):
        open_table(declare(schema=schema, partition_by=(column,)))


@pytest.mark.variants(1)
def test_small_files_are_put_together_and_old_ones_go(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(*[b'{"a": %d}' % n for n in range(12)]), 1: keyed(b'{"b": 1}')}
    for _ in range(4):
        job.fill(log, 3)
    before, ends = rows(job.table), job.table.ends()
    assert len(job.table.scan()) == 5
    assert job.table.compact()[:2] == (4, 1)
    assert len(job.table.scan()) == 2
    assert (rows(job.table), job.table.ends()) == (before, ends)
    assert job.table.compact() == (0, 0, 0)
    place = TableLocation(job.table.declaration.storage)
    old = {found.path for found in place.list() if found.path.endswith(".parquet")}
    job.table.expire(older_than_ms=later_ms())
    job.table.vacuum(older_than_ms=later_ms())
    kept = {found.path for found in place.list() if found.path.endswith(".parquet") and "_log" not in found.path}
    assert kept == {file.path for file in job.table.scan()}
    assert len(old) > len(kept)
    assert (rows(job.table), job.table.ends()) == (before, ends)
    log[0] += keyed(b'{"a": 12}')
    job.fill(log)
    assert len(rows(job.table)) == 14


def test_files_of_the_target_size_are_left_alone(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(*[b'{"a": %d}' % n for n in range(4)])}
    for _ in range(4):
        job.fill(log, 1)
    size = max(file.size_bytes for file in job.table.scan())
    assert job.table.compact(target_bytes=2 * size)[:2] == (0, 0)
    assert job.table.compact(target_bytes=2 * size + 2)[:2] == (4, 2)


def test_vacuum_leaves_what_is_younger(declare: Declare) -> None:
    job = Job.of(declare())
    work, spans = job.plan({0: keyed(b"{}")})
    written = translate(work, spans[0], [records(0, 0, keyed(b'{"a": 1}'))])
    job.table.vacuum(older_than_ms=time.time_ns() // 1_000_000 - 7_200_000)
    assert commit_round(job.table, job.dead, work, [written], spans)
    assert rows(job.table)[0]["a"] == 1


@pytest.mark.variants(1)
def test_a_compaction_gives_way_to_one_that_came_first(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(*[b'{"a": %d}' % n for n in range(4)])}
    for _ in range(4):
        job.fill(log, 1)
    old = [file.path for file in job.table.scan()]
    job.table.compact()
    with pytest.raises(TableConflict):
        job.table.commit([], [], old[:1])
    with pytest.raises(TableConflict):
        job.table.commit(job.table.scan(), [], [old[0], job.table.scan()[0].path])
    assert len(rows(job.table)) == 4


@pytest.mark.variants(1)
def test_a_commit_goes_on_beside_a_compaction(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(b'{"a": 0}', b'{"a": 1}', b'{"a": 2}')}
    job.fill(log, 1)
    job.fill(log, 1)
    work, spans = job.plan(log)
    Job.of(declare()).table.compact()
    assert job.commit(work, spans, log)
    assert [row["a"] for row in rows(job.table)] == [0, 1, 2]


def test_files_are_found_by_offsets(declare: Declare) -> None:
    job = Job.of(declare())
    log = {0: keyed(*[b'{"a": %d}' % n for n in range(6)]), 1: keyed(b"{}", b"{}")}
    for _ in range(3):
        job.fill(log, 2)

    def places(spans: Sequence[TableSpan]) -> list[tuple[int, int, int]]:
        return [(file.partition, file.first_offset, file.last_offset) for file in job.table.scan(spans)]

    assert places([TableSpan(0, 1, 3)]) == [(0, 0, 1), (0, 2, 3)]
    assert places([TableSpan(0, 4, 9), TableSpan(1, 0, 1)]) == [(0, 4, 5), (1, 0, 1)]
    assert places([TableSpan(0, 6, 9)]) == []
    assert [row["_offset"] for row in rows(job.table, [TableSpan(0, 1, 4)])] == [1, 2, 3]


def test_a_location_that_is_not_ours(declare: Declare, tmp_path: Path, table_format: str) -> None:
    assert find_table(declare()) is None
    open_table(declare())
    assert find_table(declare()) is not None
    with pytest.raises(TableForeign, match="table of stream flights with id id-1, not of flights with id id-2"):
        open_table(declare(stream_id="id-2"))
    with pytest.raises(TableForeign, match="was made partitioned by nothing"):
        open_table(declare(partition_by=("_date",)))
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "notes.txt").write_text("mine")
    with pytest.raises(TableForeign, match=r"has files and is no .*table.*: notes\.txt"):
        open_table(declare(storage=Storage(str(plain))))
    other = {"delta": "iceberg", "iceberg": "delta"}[table_format]
    with pytest.raises(TableForeign, match="has files"):
        open_table(declare(format=other))
    assert (plain / "notes.txt").read_text() == "mine"
    assert [path.name for path in plain.iterdir()] == ["notes.txt"]


def test_dead_letters_are_not_the_table(declare: Declare) -> None:
    dead = open_dead_letters(declare())
    with pytest.raises(TableForeign):
        open_table(declare(storage=dead.declaration.storage))


@pytest.mark.parametrize("location", ["gs://bucket/x", "hdfs://host/x", "s3://", "", "s3:///x"])
def test_locations_without_a_way_to_them(declare: Declare, location: str) -> None:
    with pytest.raises(TableUnsupported):
        open_table(declare(storage=Storage(location)))


def test_locations_are_paths_in_any_notation(declare: Declare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Job.of(declare()).fill({0: keyed(b'{"a": 1}')})
    location = tmp_path / "lake" / "flights"
    monkeypatch.chdir(tmp_path)
    for notation in ("lake/flights", f"file://{location}", f"{location}/"):
        assert [row["a"] for row in rows(open_table(declare(storage=Storage(notation))))] == [1]


def test_formats_and_decodings_that_there_are_not(declare: Declare) -> None:
    with pytest.raises(TableUnsupported, match="no table format 'hudi'"):
        open_table(declare(format="hudi"))
    table = open_table(declare(decode="xml"))
    with pytest.raises(OptionInvalid, match="decoded as 'xml'"):
        translate(plan_round(table), TableSpan(0, 0, 1), [])


def test_what_another_made_at_the_same_moment_is_taken(declare: Declare) -> None:
    kind: Any = type(open_table(declare()))
    schema = open_table(declare()).schema()
    kind(declare()).create(schema)
    with pytest.raises(TableForeign):
        kind(declare(stream_id="id-2")).create(schema)


def test_files_roll_at_their_size(declare: Declare) -> None:
    table = open_table(declare(decode="none"))
    work, span = plan_round(table, target_bytes=4096), TableSpan(0, 0, 400)
    batches = [
        records(0, begin, keyed(*[bytes([begin % 251, n]) * 300 for n in range(40)])) for begin in range(0, 400, 40)
    ]
    written = translate(work, span, batches)
    assert len(written.files) > 1
    assert commit_round(table, None, work, [written], [span])
    assert [row["_offset"] for row in rows(table)] == list(range(400))
