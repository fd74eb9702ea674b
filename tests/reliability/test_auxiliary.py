"""What is beside the records: checkpoints, takeover tables, rows. Each is made anew from what it was derived from."""

import copy
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients import CONFLUENT, Record
from tests.reliability.support import SURVIVALS, busy, come_back, keeps_the_promise

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.settings import Settings
from duramen.coordinators.group.coordinator import CommitMember
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.node.process import NodeProcess
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles

# -- checkpoints --------------------------------------------------------------------------------------


def _checkpoints(doubles: StoreOnDoubles) -> list[str]:
    return [path for path in doubles.files.paths() if path.startswith("checkpoint-")]


@pytest.mark.parametrize("which", ["newest", "older", "both"])
@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "removed", "older"])
def test_a_damaged_generation_of_the_checkpoint_costs_nothing(which: str, how: str) -> None:
    for at in range(12):
        doubles = StoreOnDoubles()
        appends: list[AppendOutcome] = []
        old = doubles.files.content(_checkpoints(doubles)[-1])
        busy(doubles, appends, at)
        doubles.advance(61_000)
        older, newest = _checkpoints(doubles)[-2:]
        for path in {"newest": [newest], "older": [older], "both": [older, newest]}[which]:
            file = doubles.files.open(path)
            if how == "flipped":
                doubles.files.corrupt(path, at * (file.size() - 1) // 11, 1 << at % 8)
            elif how == "removed":
                doubles.files.unlink(path)
            elif how == "older":
                doubles.files.replace(path, old)
            else:
                file.truncate(at * file.size() // 12 if how == "cut" else 0)
        doubles.kill()
        if which == "both" or (which == "newest" and how != "removed"):
            assert any("checkpoint" in finding for finding in doubles.findings), "it says so"
        keeps_the_promise(doubles, appends)
        come_back(doubles, SURVIVALS[at % 3], at)
        assert doubles.findings == []
        keeps_the_promise(doubles, appends)


# -- takeover tables ----------------------------------------------------------------------------------


def test_epochs_and_first_offsets_come_from_the_batches_and_leaders_from_the_metadata_log() -> None:
    hand = ManualBroker({"node.id": 3})
    hand.create("led", 2)
    expected: list[list[tuple[int, int, int]]] = []
    for life, node_id in enumerate((3, 3, 8, 3)):
        if life:
            hand.stop()
            hand.settings = Settings(BROKER, options={"node.id": node_id})
            hand.start()
        for number in range(life + 2):
            hand.produce("led", b"%d" % number, partition=number % 2)
        hand.advance(61_000)
    stream = hand.broker.streams.get("led")
    expected = [stream.partition(index).log.takeovers.rows() for index in range(2)]
    assert [leader for _, leader, _ in expected[0]] == [3, 3, 8, 3]
    values = [hand.values("led", index) for index in range(2)]
    hand.stop()
    for path in hand.files.paths():
        if path.startswith(("checkpoint-", "wal/")):
            hand.files.unlink(path)
    hand.start()
    for restart in (None, hand.restart, hand.crash):
        if restart is not None:
            restart()
        stream = hand.broker.streams.get("led")
        assert [stream.partition(index).log.takeovers.rows() for index in range(2)] == expected
        assert [hand.values("led", index) for index in range(2)] == values
        hand.advance(61_000)


# -- rows in memory -----------------------------------------------------------------------------------


def _committing(hand: ManualBroker, last: int) -> None:
    """Groups commit offsets up to `last` one after another."""
    if hand.broker.streams.find("t") is None:
        hand.create("t", 2)
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    for offset in range(1, last + 1):
        for group in ("a", "b"):
            answer: CallbackResult[object] = CallbackResult()
            wanted = [(OffsetKey(group, "t", index), CommittedOffset(offset + index, 0, "", 0)) for index in range(2)]
            hand.broker.groups.commit(group, CommitMember("", None, -1), wanted, answer)
        hand.settle()


def _committed(hand: ManualBroker) -> dict[tuple[str, str, int], int]:
    return {
        (key.group, key.topic, key.partition): found.offset
        for group in ("a", "b")
        for key, found in hand.broker.groups.all_committed(group)
    }


def test_rows_that_are_lost_are_rebuilt_to_the_same_content() -> None:
    hand = ManualBroker()
    _committing(hand, 20)
    expected = _committed(hand)
    assert expected["b", "t", 1] == 21
    hand.stop()
    hand.rows.clear()
    hand.start()
    assert _committed(hand) == expected


def test_rows_that_are_behind_are_brought_to_the_same_content() -> None:
    for seed in range(8):
        hand = ManualBroker()
        _committing(hand, 10)
        hand.rows.flush()
        _committing(hand, 10)
        expected = _committed(hand)
        hand.files.locks.clear()
        hand.rows.crash(random.Random(seed))
        hand.files.end_process()
        hand.start()
        assert _committed(hand) == expected


def test_rows_that_are_ahead_of_their_log_are_discarded() -> None:
    hand = ManualBroker()
    _committing(hand, 5)
    expected = _committed(hand)
    hand.stop()
    backup = copy.deepcopy(hand.files)
    hand.start()
    _committing(hand, 9)
    assert _committed(hand) != expected
    hand.stop()
    hand.files = backup  # the directory is put back, its rows are not
    hand.reports.clear()
    hand.start()
    assert any("does not fit" in report for report in hand.reports)
    assert _committed(hand) == expected


# -- RocksDB ------------------------------------------------------------------------------------------

Spoil = Callable[[Path], None]


def _largest(rows: Path, suffix: str) -> Path:
    return max(rows.glob(f"*{suffix}*"), key=lambda path: path.stat().st_size)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


_SPOILT: dict[str, Spoil] = {
    "all of it removed": shutil.rmtree,
    "a table flipped": lambda rows: _flip(_largest(rows, ".sst")),
    "its manifest flipped": lambda rows: _flip(_largest(rows, "MANIFEST")),
    "CURRENT removed": lambda rows: (rows / "CURRENT").unlink(),
}


def _commit(address: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition("viewed", 0, offset)], asynchronous=False)
    consumer.close()


def _read_committed(address: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    (found,) = consumer.committed([TopicPartition("viewed", 0)], timeout=60)
    consumer.close()
    return int(found.offset)


@pytest.mark.long
def test_damaged_files_of_rocksdb_are_rebuilt_to_the_same_content(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    rows = node.data_dir / "coordinators" / "rows"
    CONFLUENT.produce(node.kafka, "viewed", [Record(b"%d" % number) for number in range(100)])
    for group in range(12):
        _commit(node.kafka, f"group-{group}" + "." * 200, group)
    behind: Path | None = None
    for at, (how, spoil) in enumerate(_SPOILT.items()):
        assert node.stop() == 0
        if behind is None:
            behind = shutil.copytree(rows, node.data_dir.parent / "behind")
        spoil(rows)
        node.restart()
        for group in (0, 7, 11):
            assert _read_committed(node.kafka, f"group-{group}" + "." * 200) == group, how
        assert _read_committed(node.kafka, "last") == (at - 1 if at else -1001), how
        _commit(node.kafka, "last", at)
    # Behind: an older copy of it. Ahead: the newest one, where nothing of what was committed since is in the log.
    assert node.stop() == 0
    ahead = shutil.copytree(rows, node.data_dir.parent / "ahead")
    shutil.rmtree(rows)
    shutil.copytree(behind or ahead, rows)
    node.restart()
    assert _read_committed(node.kafka, "last") == len(_SPOILT) - 1
    node.kill()
    other = new_node(directory="other").start()
    CONFLUENT.produce(other.kafka, "viewed", [Record(b"x")])
    _commit(other.kafka, "last", 0)
    assert other.stop() == 0
    shutil.rmtree(other.data_dir / "coordinators" / "rows")
    shutil.copytree(ahead, other.data_dir / "coordinators" / "rows")
    other.restart()
    assert _read_committed(other.kafka, "last") == 0
    assert _read_committed(other.kafka, "group-7" + "." * 200) == -1001
    for one in (node, other):
        assert "Traceback" not in one.log_path.read_text()
