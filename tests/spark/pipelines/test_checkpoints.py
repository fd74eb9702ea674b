"""A checkpoint is for one query of one pipeline; whoever else comes with it is refused."""

from pathlib import Path

import pytest

from duramen.base.errors import CheckpointInvalid, PipelineBusy, PipelineFailed
from duramen.spark.pipelines.checkpoints import Checkpoints
from duramen.spark.pipelines.status import PipelineStatus, QueryStatus, read_status, write_status


def made(directory: Path, query: str) -> None:
    (directory / query / "offsets").mkdir(parents=True)
    (directory / query / "metadata").write_text('{"id":"46ddac9b"}')


def test_a_query_comes_back_to_its_own(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "delays")
    checkpoints.claim("out", ["b", "a"])
    made(tmp_path, "out")
    assert checkpoints.claim("out", ["a", "b"]).query_id == "46ddac9b"


def test_who_else_comes_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "delays")
    checkpoints.claim("out", ["a", "b"])
    with pytest.raises(CheckpointInvalid, match="is of the streams a, b, and the query reads c"):
        checkpoints.claim("out", ["c"])
    with pytest.raises(CheckpointInvalid, match="is of the pipeline delays"):
        Checkpoints(tmp_path, "other").claim("out", ["a", "b"])
    made(tmp_path, "foreign")
    with pytest.raises(CheckpointInvalid, match="that no pipeline made"):
        checkpoints.claim("foreign", ["a"])
    note = tmp_path / "out.json"
    note.write_text(note.read_text().replace('"version":1', '"version":0'))
    with pytest.raises(CheckpointInvalid, match="is of version 0, and this is 1"):
        checkpoints.claim("out", ["a", "b"])
    note.write_text("nothing")
    with pytest.raises(CheckpointInvalid, match="cannot be read"):
        checkpoints.claim("out", ["a", "b"])


def test_what_tells_batches_apart(tmp_path: Path) -> None:
    made(tmp_path, "out")
    checkpoint = Checkpoints(tmp_path, "delays").of("out")
    entry = tmp_path / "out" / "offsets" / "3"
    entry.write_text('v1\n{"batchTimestampMs":1}\n{"flights":{"0":100}}')
    first = checkpoint.digest_of(3)
    entry.write_text('v1\n{"batchTimestampMs":2}\n{"flights":{"0":100}}')
    assert checkpoint.digest_of(3) == first != ""
    entry.write_text('v1\n{"batchTimestampMs":1}\n{"flights":{"0":101}}')
    assert checkpoint.digest_of(3) != first
    assert checkpoint.digest_of(4) == ""


def test_no_metadata_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match="its metadata cannot be read"):
        _ = Checkpoints(tmp_path, "delays").of("out").query_id


def test_one_application_at_a_time_and_its_status(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new", "delays")
    with pytest.raises(PipelineFailed, match="no pipeline has run with the checkpoints"):
        read_status(checkpoints)
    status = PipelineStatus("delays", "running", "local[*]", 1, 2, [QueryStatus("out", "running", 0, None, None, None)])
    with checkpoints.held():
        write_status(checkpoints, status)
        assert read_status(checkpoints) == status
        with pytest.raises(PipelineBusy, match="another application runs with"), checkpoints.held():
            pass
    assert read_status(checkpoints).state == "lost"
    (tmp_path / "new" / "status.json").write_text("{}")
    with pytest.raises(PipelineFailed, match="is no status of a pipeline"):
        read_status(checkpoints)
