"""Directories written by earlier releases: every record, offset and group is still there."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duramen
from duramen.codec.batch import BatchInput, encode
from duramen.node.process import NodeProcess
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.views import MemoryStateStore
from tests.golden.make import ARCHIVE, CONTENT, GROUP, content, text

GOLDEN = Path(__file__).parent
RELEASES = sorted(path.name for path in GOLDEN.iterdir() if (path / ARCHIVE).exists())
PRODUCER = {"producer_id": 4711, "producer_epoch": 3}


def golden(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / release / CONTENT).read_text())
    return found


def without_takeovers(of: dict[str, Any]) -> dict[str, Any]:
    partitions = {name: {key: of[key] for key in of if key != "takeovers"} for name, of in of["partitions"].items()}
    return {"partitions": partitions, "committed": of["committed"]}


def opened(release: str) -> ManualBroker:
    hand = ManualBroker()
    hand.stop()
    hand.files, hand.rows = type(hand.files)(), MemoryStateStore()
    with tarfile.open(GOLDEN / release / ARCHIVE) as archive:
        for member in archive.getmembers():
            data = archive.extractfile(member)
            assert data is not None
            hand.files.make_directory(member.name.rpartition("/")[0])
            hand.files.open(member.name, create=True).write([data.read()], 0)
    hand.reports.clear()
    hand.start()
    return hand


@pytest.mark.parametrize("release", RELEASES)
def test_every_record_is_where_it_was(release: str) -> None:
    hand, expected = opened(release), golden(release)
    assert hand.reports == []
    for _ in range(2):
        found = content(hand)
        assert without_takeovers(found) == without_takeovers(expected)
        for name, partition in found["partitions"].items():
            # Those of a leadership that left no batch behind may be lost.
            assert [row for row in expected["partitions"][name]["takeovers"] if row not in partition["takeovers"]] == []
        hand.restart()


@pytest.mark.parametrize("release", RELEASES)
def test_producers_go_on(release: str) -> None:
    hand = opened(release)
    log = hand.broker.streams.get("idempotent").partition(0)
    end_offset = log.log.end_offset

    def write(value: bytes, sequence: int) -> int:
        answer: CallbackResult[int] = CallbackResult()
        log.append(encode([BatchInput(0, None, value)], base_sequence=sequence, **PRODUCER), answer)
        hand.settle()
        return answer.value

    # The last batch again, which only the write-ahead log had: it has its offset already.
    assert write(b"c", 4) == end_offset - 1
    assert write(b"d", 5) == end_offset
    assert content(hand)["partitions"]["idempotent/0"]["end_offset"] == end_offset + 1


@pytest.mark.parametrize("release", RELEASES)
def test_a_node_serves_it(release: str, new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / release / ARCHIVE) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    node = new_node({"offsets.retention.minutes": 1 << 22}).start()
    expected = golden(release)
    with duramen.connect(node.http) as client:
        for name, partition in expected["partitions"].items():
            stream, number = name.split("/")
            if stream.startswith("__"):
                continue
            starts = [partition["start_offset"], *(last + 1 for _, last in partition["damage"])]
            ends = [*(first for first, _ in partition["damage"]), partition["end_offset"]]
            found = [
                [record.offset, text(record.key), text(record.value)]
                for start, end in zip(starts, ends, strict=True)
                for batch in client.consume(stream, partition=int(number), offset=start, until=end)
                for record in batch
            ]
            assert found == [[offset, key, value] for offset, _, key, value, _ in partition["records"]], name
        committed = {f"{of.stream}/{of.partition}": of.committed_offset for of in client.groups.describe(GROUP).offsets}
        assert committed == expected["committed"][GROUP]
    assert node.stop() == 0
