"""`duramen pipeline`, as far as it needs no Spark: what is said of files, and of what ran."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from tests.cli.command import Run

from duramen.base.errors import PipelineInvalid
from duramen.cli.pipeline.pipeline_file import print_starting
from duramen.cli.pipeline.watch import LineWatcher, ScreenWatcher
from duramen.spark.batches import native
from duramen.spark.pipelines.checkpoints import Checkpoints
from duramen.spark.pipelines.definition.parser import parse
from duramen.spark.pipelines.definition.problems import Problems
from duramen.spark.pipelines.progress import BatchFigures
from duramen.spark.pipelines.status import PipelineStatus, QueryStatus, read_status, starting, write_status

RIGHT = """\
pipeline: copy
brokers: 127.0.0.1:1
sources:
  there: {stream: there, options: {kafka.request.timeout.ms: 100}}
sinks:
  out: {from: there, delta: out}
"""


@pytest.mark.long
def test_problems_have_their_places(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(RIGHT.replace("from: there", "from: their") + "  sink: {}\n")
    ended = duramen_alone("pipeline", "validate", "--offline", "it.yaml")
    assert ended.err.splitlines()[0] == "it.yaml:6:15: there is no source or step their; did you mean there?"
    assert ended.err.splitlines()[3].startswith("duramen: it.yaml has 3 problems, each named above")
    for command in ("run", "explain"):
        ended = duramen_alone("pipeline", command, "it.yaml")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.splitlines()[:2] == [
            "it.yaml:7:9: sink sink must have exactly one of stream, delta, iceberg, console; it has none",
            "it.yaml:7:9: sink sink must have from: the source or step that it writes",
        ]
        assert ended.err.splitlines()[2].startswith("duramen: it.yaml has 2 problems, each named above")
        assert ended.err.endswith("[pipeline-invalid]\n")
    assert not (tmp_path / "checkpoints").exists()


def test_validate_without_spark_says_all(duramen_alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pipeline that copies a stream there is nothing that only Spark knows, so no Java is needed."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    (tmp_path / "it.yaml").write_text(RIGHT)
    ended = duramen_alone("pipeline", "validate", "--offline", "it.yaml")
    slower = "duramen-native is not installed: records are decoded in Python, which is slower\n"
    notice = "" if native.is_installed() else slower
    assert (ended.code, ended.err) == (0, notice)
    assert ended.out == "it.yaml is valid: pipeline copy with 1 source, 0 steps and 1 sink.\n"
    (tmp_path / "file").write_text("dear")
    (tmp_path / "it.yaml").write_text(
        RIGHT.replace("delta: out", "delta: file/out").replace("brokers:", "triger: 10s\nbrokers:")
        + "  log: {from: there, stream: log, trigger: soon}\n"
    )
    ended = duramen_alone("pipeline", "validate", "it.yaml")
    assert ended.code == 1
    assert ended.err.startswith(notice)
    assert [line.partition(": ")[0] for line in ended.err.removeprefix(notice).splitlines()] == [
        "it.yaml:2:1", "it.yaml:3:10", "it.yaml:7:29", "it.yaml:8:44", "duramen",
    ]  # fmt: skip
    assert "has no key triger" in ended.err
    assert "127.0.0.1:1" in ended.err
    assert "where a directory should be" in ended.err
    assert "trigger: 'soon' does not fit" in ended.err
    assert ended.err.endswith("[pipeline-invalid]\n")


def test_names_are_checked_before_anything_is_started(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(RIGHT.replace("from: there", "from: their"))
    ended = duramen_alone("pipeline", "run", "it.yaml")
    assert ended.code == 1
    assert "it.yaml:6:15: there is no source or step their; did you mean there?" in ended.err.splitlines()
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.long
def test_brokers_that_do_not_answer(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(RIGHT)
    for command in ("validate", "run"):
        ended = duramen_alone("pipeline", command, "it.yaml")
        assert ended.code == 1
        assert len(ended.err.splitlines()) == 1
        assert "127.0.0.1:1" in ended.err
        assert ended.err.endswith("[server-unreachable]\n")
        assert ("--offline" in ended.err) == (command == "validate")


def test_no_file_and_no_text(duramen_alone: Run, tmp_path: Path) -> None:
    ended = duramen_alone("pipeline", "validate", "nothing.yaml")
    assert (ended.code, ended.err) == (1, "duramen: nothing.yaml: No such file or directory [system-failed]\n")
    (tmp_path / "it.yaml").write_bytes(b"pipeline: \xff")
    ended = duramen_alone("pipeline", "validate", "it.yaml")
    assert ended.err.startswith("duramen: it.yaml is not UTF-8 text, at byte 10")


def test_status(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(RIGHT)
    ended = duramen_alone("pipeline", "status", "it.yaml")
    assert ended.code == 1
    assert "no pipeline has run with the checkpoints" in ended.err
    assert ended.err.endswith("[pipeline-failed]\n")
    checkpoints = Checkpoints(tmp_path / "elsewhere", "copy")
    figures = BatchFigures(7, 100, 1234.5, 250, 42, 5, 1000, {"addBatch": 200})
    queries = [
        QueryStatus("out", "running", 1, "a disk\x1b[2J was full", 5, figures),
        QueryStatus("log", "starting", 0, None, None, None),
    ]
    with checkpoints.held():
        write_status(checkpoints, PipelineStatus("copy", "running", "local[*]", 1_700_000_000_000, 2, queries))
        ended = duramen_alone("pipeline", "status", "it.yaml", "--checkpoints", "elsewhere")
        assert ended.code == 0
        assert ended.out.splitlines() == [
            "Pipeline copy on local[*] since 2023-11-14 22:13:20Z: running",
            "QUERY  STATE     BATCH  ROWS  ROWS/S  LAG  BATCH TIME  STATE ROWS  RESTARTS",
            "out    running       7   100    1234   42      250 ms           5         1",
            "log    starting      -     -       -    -           -           -         0",
            "out: a disk\\x1b[2J was full",
        ]
    ended = duramen_alone("pipeline", "status", "it.yaml", "--checkpoints", "elsewhere", "--format", "json")
    assert ended.code == 1
    document = json.loads(ended.out)
    assert document["state"] == "lost"
    assert document["queries"][0]["batch"]["lag_records"] == 42


def test_status_while_spark_starts(tmp_path: Path) -> None:
    problems = Problems()
    declared = parse(RIGHT, str(tmp_path), {}, problems)
    assert declared is not None
    checkpoints = Checkpoints(tmp_path / "checkpoints", "copy")
    with checkpoints.held():
        with starting(checkpoints, declared, "local[2]", lambda: False):
            status = read_status(checkpoints)
        assert (status.pipeline, status.state, status.master) == ("copy", "starting", "local[2]")
        assert status.queries == [QueryStatus("out", "starting", 0, None, None, None)]
    assert read_status(checkpoints).state == "lost"
    with pytest.raises(PipelineInvalid), checkpoints.held(), starting(checkpoints, declared, "local[2]", lambda: False):
        raise PipelineInvalid("a column is not there")
    assert read_status(checkpoints).state == "failed"


def status(batch_id: int) -> PipelineStatus:
    figures = BatchFigures(batch_id, 100, 1234.5, 250, 42, 5, 1000, {})
    return PipelineStatus("copy", "running", "local[*]", 1, 2, [QueryStatus("out", "running", 0, None, 5, figures)])


def test_a_terminal_is_told_what_takes_its_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_starting("local[*]")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_starting("local[*]")
    assert capsys.readouterr() == ("", "Spark starts on local[*] …\n")


@pytest.mark.long
def test_one_problem_and_more(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(RIGHT.replace("brokers: 127.0.0.1:1", "borkers: 127.0.0.1:1"))
    ended = duramen_alone("pipeline", "validate", "it.yaml")
    assert ended.err.splitlines()[0] == "it.yaml:2:1: the pipeline has no key borkers; did you mean brokers?"
    assert ended.err.splitlines()[1].startswith("duramen: it.yaml has 1 problem, named above with its line and column;")


def test_lines_tell_what_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = LineWatcher()
    for batch_id in (1, 1, 2):
        watcher.status(status(batch_id))
    watcher.rows("screen", 3, [{"a": 1}])
    first, second, rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["query"], first["batch"]["batch_id"], second["batch"]["batch_id"]) == ("out", 1, 2)
    assert rows == {"query": "screen", "batch_id": 3, "rows": [{"a": 1}]}


def test_a_terminal_shows_a_table_and_rows_above_it() -> None:
    terminal = io.StringIO()
    with Live(console=Console(file=terminal, force_terminal=True, width=100), auto_refresh=False) as live:
        watcher = ScreenWatcher(live)
        watcher.status(status(1))
        watcher.rows("screen", 3, [{"a": "\x1b[2J"}])
    shown = terminal.getvalue()
    assert "ROWS/S" in shown
    assert "screen, micro-batch 3:" in shown
    assert '{"a": "\\u001b[2J"}' in shown
