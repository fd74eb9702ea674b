"""A coordinator on a real node, with its rows in real files, through kills and lost rows."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.coordinators.runtime.child import STREAM

AGAIN: Final = ("coordinator-loading", "not-coordinator")
PATIENCE_S: Final = 30
KEYS: Final = ("a", "b", "c")


class Counting:
    """A node as a process, which keeps counts."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self.addresses: dict[str, str] = {}

    def start(self) -> None:
        settings = {
            "data.dir": str(self.data_dir), "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0",
            "nats.server": "off",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.coordinators.runtime.child", json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addresses = self._read()

    def _read(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, **order: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._read()
        return answer

    def sure(self, **order: str) -> int:
        """The value that it answers with once the state is loaded."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(**order)
            if answer.get("error") not in AGAIN:
                return int(answer["value"])
            assert time.monotonic() < until_s, answer

    def make_stream(self) -> None:
        config = {"retention.ms": "-1", "durability": "sync"}
        admin = AdminClient({"bootstrap.servers": self.addresses["kafka"]})
        admin.create_topics([NewTopic(STREAM, 1, config=config)])[STREAM].result(PATIENCE_S)

    def log_start(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.addresses["kafka"], "group.id": "g"})
        low, _ = consumer.get_watermark_offsets(TopicPartition(STREAM, 0), PATIENCE_S)
        consumer.close()
        return int(low)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        assert self._process is not None
        self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0
        self._process = None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path / "data")
    made.start()
    yield made
    made.kill()


def count(node: Counting, rounds: int, before: int = 0) -> int:
    for number in range(before, before + rounds):
        assert [node.sure(add=key) for key in KEYS] == [number + 1] * len(KEYS)
    return before + rounds


@pytest.mark.long
def test_counts_outlive_kills_and_lost_rows_and_are_refused_where_all_is_lost(node: Counting) -> None:
    rows = node.data_dir / "coordinators"
    assert not rows.exists()
    node.make_stream()
    counted = count(node, 30)
    assert node.log_start() > 0
    node.kill()
    node.start()
    assert [node.sure(get=key) for key in KEYS] == [counted] * len(KEYS)
    counted = count(node, 10, counted)
    node.stop()
    shutil.rmtree(rows / "rows")
    node.start()
    assert [node.sure(get=key) for key in KEYS] == [counted] * len(KEYS)
    counted = count(node, 10, counted)
    node.kill()
    for table in (rows / "rows").glob("*.sst"):
        # A new file: checkpoints have hard links to the old one.
        damaged = table.read_bytes()[: table.stat().st_size // 2]
        table.unlink()
        table.write_bytes(damaged)
    node.start()
    assert [node.sure(get=key) for key in KEYS] == [counted] * len(KEYS)
    node.kill()
    shutil.rmtree(rows)
    node.start()
    assert node.log_start() > 0
    for _ in range(5):
        assert node.ask(get=KEYS[0])["error"] in (*AGAIN, "state-damaged")
        assert node.ask(add=KEYS[0])["error"] in (*AGAIN, "state-damaged")
