"""The log of a directory's files: whose it is, and what two that write it at once are told."""

import json
from pathlib import Path

import pytest

from duramen.base.errors import TableConflict, TableDamaged, TableForeign, TableStorageFailed
from duramen.spark.files.sinklog import NOTHING_YET, SinkLog


def file_in(directory: Path, number: int) -> Path:
    path = directory / f"part {number}.parquet"
    path.write_bytes(b"x" * number)
    return path


def test_says_what_is_committed_and_by_whom(tmp_path: Path) -> None:
    log = SinkLog(tmp_path)
    assert (log.owner(), log.last()) == (None, NOTHING_YET)
    log.begin("one")
    assert (log.owner(), log.last()) == ("one", NOTHING_YET)
    for batch_id in range(21):
        log.add(batch_id, [file_in(tmp_path, batch_id)])
        assert SinkLog(tmp_path).last() == batch_id
    lines = (tmp_path / "_spark_metadata" / "19.compact").read_text().splitlines()
    assert lines[0] == "v1"
    assert [json.loads(line)["size"] for line in lines[1:]] == list(range(20))
    assert json.loads(lines[1])["path"] == f"file://{tmp_path}/part%200.parquet"
    # What a compact one has, and none goes back to, is removed.
    assert not (tmp_path / "_spark_metadata" / "8").exists()


def test_of_two_that_commit_a_micro_batch_one_is_refused(tmp_path: Path) -> None:
    log = SinkLog(tmp_path)
    log.begin("one")
    log.add(0, [file_in(tmp_path, 1)])
    before = (tmp_path / "_spark_metadata" / "0").read_bytes()
    with pytest.raises(TableConflict, match="two write there at once"):
        SinkLog(tmp_path).add(0, [file_in(tmp_path, 2)])
    assert (tmp_path / "_spark_metadata" / "0").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "_spark_metadata").iterdir()) == ["0", "duramen.json"]


def test_of_two_that_begin_one_is_refused(tmp_path: Path) -> None:
    SinkLog(tmp_path).begin("one")
    with pytest.raises(TableStorageFailed):
        SinkLog(tmp_path).begin("two")
    assert SinkLog(tmp_path).owner() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["_spark_metadata"]


def test_one_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    SinkLog(tmp_path).begin("one")
    (tmp_path / "_spark_metadata" / "duramen.json").write_text("no JSON")
    with pytest.raises(TableDamaged, match=str(tmp_path)):
        SinkLog(tmp_path).owner()
    (tmp_path / "_spark_metadata" / "duramen.json").unlink()
    with pytest.raises(TableForeign, match="Spark's own file sink"):
        SinkLog(tmp_path).owner()
