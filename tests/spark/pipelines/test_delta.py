"""A table has each micro-batch once, whatever is repeated, interrupted or raced; rows take each other's place."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, Row, StructType

from duramen.base.errors import CheckpointDiffers, TableRefused
from duramen.spark.pipelines.checkpoints import Checkpoint
from duramen.spark.pipelines.delta import DeltaWriter, Upsert, _merge, decision

SCHEMA = pa.schema([pa.field("it", pa.int64())])


class Crash(Exception):
    """The driver is killed."""


class Batch:
    """A micro-batch as far as the writer needs one; with `crashes`, the driver ends when its files are written."""

    def __init__(self, rows: list[int], *, crashes: bool = False, parts: int = 2) -> None:
        self.schema = StructType().add("it", LongType())
        self._rows = rows
        self._crashes = crashes
        self._parts = parts
        self._said: list[Row] = []

    def mapInArrow(  # noqa: N802 -- Spark's name
        self, write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str
    ) -> "Batch":
        for part in range(self._parts):
            rows = pa.RecordBatch.from_pylist([{"it": it} for it in self._rows[part :: self._parts]], schema=SCHEMA)
            self._said += [Row(**file) for said in write(iter([rows])) for file in said.to_pylist()]
        return self

    def collect(self) -> list[Row]:
        if self._crashes:
            raise Crash
        return self._said


def checkpoint_at(directory: Path, query_id: str = "one") -> Checkpoint:
    (directory / "offsets").mkdir(parents=True, exist_ok=True)
    (directory / "metadata").write_text(f'{{"id":"{query_id}"}}')
    return Checkpoint(directory)


def planned(checkpoint: Checkpoint, batch_id: int, end: int) -> None:
    (checkpoint.directory / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{end}")


def rows_of(location: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(location)).to_pyarrow_table().to_pylist()
    return found


def writer(tmp_path: Path, query_id: str = "one", owner: str = "p/s") -> DeltaWriter:
    return DeltaWriter(tmp_path / "table", owner, checkpoint_at(tmp_path / query_id, query_id), None)


def write(to: DeltaWriter, rows: list[int], batch_id: int, **more: Any) -> None:
    to(Batch(rows, **more), batch_id)  # type: ignore[arg-type]


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 9), max_size=4), st.sampled_from(["once", "twice", "crash", "crash after"])),
        max_size=5,
    )
)
def test_each_batch_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[int], str]]
) -> None:
    directory = tmp_path_factory.mktemp("delta")
    expected: list[int] = []
    for batch_id, (rows, fate) in enumerate(batches):
        # A driver that ended comes back with nothing but the checkpoint.
        planned(checkpoint_at(directory / "one"), batch_id, batch_id)
        if fate == "crash":
            with pytest.raises(Crash):
                write(writer(directory), rows, batch_id, crashes=True)
        write(writer(directory), rows, batch_id)
        if fate in ("twice", "crash after"):
            write(writer(directory), rows, batch_id)
        expected += rows
        assert sorted(row["it"] for row in rows_of(directory / "table")) == sorted(expected)


def test_two_drivers_race_and_each_batch_is_there_once(tmp_path: Path) -> None:
    drivers = [writer(tmp_path), writer(tmp_path)]
    for batch_id in range(5):
        errors: list[BaseException] = []

        def run(driver: DeltaWriter, batch_id: int = batch_id, errors: list[BaseException] = errors) -> None:
            try:
                write(driver, [batch_id], batch_id)
            except Exception as error:  # noqa: BLE001 -- a thread's failure is the test's
                errors.append(error)

        threads = [threading.Thread(target=run, args=(driver,)) for driver in drivers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if batch_id:  # while it is made, one of two may fail, and its query is started again
            assert errors == []
    assert sorted(row["it"] for row in rows_of(tmp_path / "table")) == [0, 1, 2, 3, 4]


def test_a_checkpoint_that_is_older_or_newer_than_the_table_is_refused(tmp_path: Path) -> None:
    for batch_id in range(3):
        write(writer(tmp_path), [batch_id], batch_id)
    with pytest.raises(CheckpointDiffers, match=r"older than the table .*: it is at micro-batch 1, .* up to 2"):
        write(writer(tmp_path), [1], 1)
    with pytest.raises(CheckpointDiffers, match=r"is older than the checkpoint: .* up to 4, and the last is 2"):
        write(writer(tmp_path), [5], 5)
    assert len(rows_of(tmp_path / "table")) == 3
    with pytest.raises(CheckpointDiffers, match="up to 6, and none"):
        DeltaWriter(tmp_path / "other", "p/s", checkpoint_at(tmp_path / "one"), None)(Batch([1]), 7)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_a_repeated_number_with_other_offsets_is_refused(tmp_path: Path) -> None:
    checkpoint = checkpoint_at(tmp_path / "one")
    planned(checkpoint, 0, 100)
    write(writer(tmp_path), [1], 0)
    write(writer(tmp_path), [1], 0)
    planned(checkpoint, 0, 101)
    with pytest.raises(CheckpointDiffers, match="micro-batch 0 ends at other offsets"):
        write(writer(tmp_path), [1, 2], 0)
    assert len(rows_of(tmp_path / "table")) == 1


def test_a_new_checkpoint_does_not_write_all_of_it_again(tmp_path: Path) -> None:
    write(writer(tmp_path), [1], 0)
    with pytest.raises(CheckpointDiffers, match="was begun with another checkpoint"):
        write(writer(tmp_path, "two"), [1], 0)


def test_a_location_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", pa.Table.from_pylist([{"it": 1}], schema=SCHEMA))
    with pytest.raises(TableRefused, match="was not made by a pipeline"):
        write(writer(tmp_path), [1], 0)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "letter.txt").write_text("dear")
    with pytest.raises(TableRefused, match="has files that are no Delta table"):
        DeltaWriter(tmp_path / "files", "p/s", checkpoint_at(tmp_path / "one"), None)(Batch([1]), 0)  # type: ignore[arg-type]


def test_a_table_of_another_sink_and_other_columns_are_refused(tmp_path: Path) -> None:
    write(writer(tmp_path), [1], 0)
    with pytest.raises(TableRefused, match="belongs to the pipeline p/s"):
        write(writer(tmp_path, owner="p/t"), [1], 1)
    other = Batch([])
    other.schema = StructType().add("it", "string")
    with pytest.raises(TableRefused, match="it is int64, and the rows' is string"):
        writer(tmp_path)(other, 1)  # type: ignore[arg-type]


def test_a_file_that_cannot_be_written_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    write(writer(tmp_path), [1], 0)
    (tmp_path / "table").chmod(0o555)

    class Full(Batch):
        def mapInArrow(self, *_: Any) -> "Batch":  # noqa: N802 -- Spark's name
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        writer(tmp_path)(Full([2]), 1)  # type: ignore[arg-type]
    (tmp_path / "table").chmod(0o755)
    write(writer(tmp_path), [2], 1)
    assert sorted(row["it"] for row in rows_of(tmp_path / "table")) == [1, 2]


@given(st.integers(-1, 5), st.integers(0, 8), st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a", "b"]))
def test_what_is_decided(last: int, batch_id: int, known: str, digest: str) -> None:
    try:
        decided = decision("t", last, batch_id, known, digest)
    except CheckpointDiffers:
        other = bool(known and digest and known != digest)
        assert batch_id not in (last, last + 1) or (batch_id == last and other)
    else:
        assert decided == ("write" if batch_id == last + 1 else "done")
        assert batch_id in (last, last + 1)


KEYED = pa.schema(
    [
        pa.field("Key A", pa.string()),
        pa.field("b", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("value", pa.string()),
    ]
)
CHANGE = st.tuples(st.integers(0, 9), st.sampled_from(["x", "y"]), st.booleans())


@settings(max_examples=20)
@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "'\"`", None]), CHANGE, max_size=4), max_size=4), st.booleans()
)
def test_rows_take_each_others_place(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str | None, tuple[int, str, bool]]], in_sequence: bool
) -> None:
    location = str(tmp_path_factory.mktemp("merged"))
    DeltaTable.create(location, KEYED)
    model: dict[str | None, tuple[int, str]] = {}
    upsert = Upsert(["Key A", "b"], "seq" if in_sequence else None, "deleted")
    for batch in batches:
        rows = [
            {"Key A": key, "b": 1, "seq": seq, "value": value, "__deleted": deleted}
            for key, (seq, value, deleted) in batch.items()
        ]
        table = pa.Table.from_pylist(rows, schema=KEYED.append(pa.field("__deleted", pa.bool_())))
        _merge(DeltaTable(location), table, KEYED.names, upsert, CommitProperties())
        for key, (seq, value, deleted) in batch.items():
            if in_sequence and key in model and seq < model[key][0]:
                continue
            if deleted:
                model.pop(key, None)
            else:
                model[key] = (seq, value)
        found = {row["Key A"]: (row["seq"], row["value"]) for row in rows_of(Path(location))}
        assert found == model
        assert len(rows_of(Path(location))) == len(model)
