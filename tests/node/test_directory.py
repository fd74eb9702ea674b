"""Data directories that a node cannot or must not use: it says so in one line, and leaves them as they are."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients import CONFLUENT, Record

from duramen.node.process import NodeProcess

_FAILED = 1


# Root may write everywhere: this takes that right (CAP_DAC_OVERRIDE) away for good, and goes on as the command.
_WITHOUT_RIGHTS = """
import ctypes, os, sys
if os.getuid() == 0:
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


# Recovery that goes on when it is told to.
_SLOW_RECOVERY = """
import runpy, sys
from duramen.node import node

recover = node.recover

def slow(*args):
    print("recovering", flush=True)
    sys.stdin.readline()
    return recover(*args)

node.recover = slow
runpy.run_module("duramen", run_name="__main__", alter_sys=True)
"""


def _refused(directory: Path, naming: str = "") -> str:
    """Try to serve a directory; the one line that names it, or `naming`, before the node gives up."""
    options = ["--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats", "off"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_RIGHTS, "-m", "duramen", "serve", "--data-dir", str(directory), *options],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == _FAILED, done.stdout
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if (naming or str(directory)) in line]
    return line


def _everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.fixture
def stopped(new_node: Callable[..., NodeProcess]) -> NodeProcess:
    """A node that has stored a hundred records and was stopped."""
    node: NodeProcess = new_node().start()
    CONFLUENT.produce(node.kafka, "kept", [Record(b"%d" % number) for number in range(100)])
    assert node.stop() == 0
    return node


def _still_whole(node: NodeProcess) -> None:
    node.start()
    found = CONFLUENT.consume(node.kafka, "kept", 1, 100)
    assert [read.value for read in found] == [b"%d" % number for number in range(100)]
    assert node.stop() == 0


@pytest.mark.long
def test_a_directory_that_another_node_holds(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    CONFLUENT.produce(node.kafka, "kept", [Record(b"%d" % number) for number in range(100)])
    assert "in use by another node" in _refused(node.data_dir)
    # The first one did not notice.
    assert len(CONFLUENT.consume(node.kafka, "kept", 1, 100)) == 100
    assert node.stop() == 0
    _still_whole(node)


def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    before = _everything(tmp_path)
    said = _refused(tmp_path)
    assert "thesis.txt" in said
    assert "not a data directory of Duramen" in said
    assert _everything(tmp_path) == before


def test_a_directory_of_a_newer_version(stopped: NodeProcess) -> None:
    meta = stopped.data_dir / "duramen.json"
    known = json.loads(meta.read_text())
    meta.write_text(json.dumps(known | {"format": known["format"] + 1}))
    before = _everything(stopped.data_dir)
    said = _refused(stopped.data_dir)
    assert f"storage format {known['format'] + 1}" in said
    assert "use a newer one" in said
    assert _everything(stopped.data_dir) == before
    meta.write_text(json.dumps(known))
    _still_whole(stopped)


@pytest.mark.variants(1)
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"format": "x", "directory_id": 3}'])
def test_a_directory_whose_description_is_damaged(stopped: NodeProcess, content: bytes) -> None:
    meta = stopped.data_dir / "duramen.json"
    known = meta.read_bytes()
    meta.write_bytes(content)
    assert "damaged" in _refused(stopped.data_dir)
    meta.write_bytes(known)
    _still_whole(stopped)


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert "cannot be used" in _refused(file)
    assert file.read_text() == "x"


@pytest.mark.long
def test_a_directory_that_cannot_be_written(stopped: NodeProcess) -> None:
    node = stopped
    places = [node.data_dir, *node.data_dir.rglob("*")]
    modes = {place: place.stat().st_mode for place in places}
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    try:
        said = _refused(node.data_dir)
        assert "cannot be used" in said
        assert "right to write" in said
    finally:
        for place, mode in modes.items():
            place.chmod(mode)
    _still_whole(node)


@pytest.mark.long
def test_a_node_stopped_while_it_recovers_holds_the_directory_to_the_end(stopped: NodeProcess) -> None:
    options = ["--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats", "off"]
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_RECOVERY, "serve", "--data-dir", str(stopped.data_dir), *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
    ) as node:  # fmt: skip
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stderr is not None
        assert node.stdout.readline() == "recovering\n"
        node.send_signal(signal.SIGTERM)
        assert "stopping" in node.stderr.readline()
        assert "in use by another node" in _refused(stopped.data_dir)
        node.stdin.write("go on\n")
        node.stdin.close()
        assert "Traceback" not in node.stderr.read()
    _still_whole(stopped)


@pytest.mark.variants(1)
@pytest.mark.parametrize("missing", ["wal", "logs"])
def test_a_directory_of_which_a_part_is_missing(stopped: NodeProcess, missing: str) -> None:
    shutil.rmtree(stopped.data_dir / missing)
    if missing == "wal":
        _still_whole(stopped)
        return
    said = _refused(stopped.data_dir, naming="the metadata log (logs/1) is damaged")
    assert "logs/1/00000000000000000000.log is missing" in said
    assert "from a backup" in said


def test_a_directory_without_checkpoints_and_write_ahead_log(stopped: NodeProcess) -> None:
    for path in [*stopped.data_dir.glob("checkpoint-*"), *stopped.data_dir.glob("wal/*")]:
        path.unlink()
    _still_whole(stopped)
    assert "no checkpoint is there: every segment is read" in stopped.log_path.read_text()
