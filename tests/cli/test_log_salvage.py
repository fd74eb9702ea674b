"""`duramen log salvage` and `truncate`: the node that starts on the new directory serves all that is left."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.cli.command import Run

import duramen
from duramen.node.process import NodeProcess

BATCHES = 20
GROUP = "readers"

Values = list[tuple[int, bytes]]
Lost = Sequence[tuple[int, int]]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Values]:
    """A directory of a node that was killed, with a stream `s`; what is in it, by offset."""
    directory, values = tmp_path_factory.mktemp("killed") / "data", Values()
    node = NodeProcess(directory, {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0})
    with node, duramen.connect(node.http) as client:
        client.streams.create("s", config={"segment.bytes": 2000})
        for number in range(BATCHES):
            records = [b"%d-%d " % (number, at) * 20 for at in range(2)]
            client.produce("s", records)
            values += enumerate(records, 2 * number)
        assert sum(len(batch) for batch in client.consume("s", group=GROUP, idle_s=1)) == 2 * BATCHES
        node.stop()
        node.restart()
        # The last of them is in the write-ahead log alone.
        client.produce("s", [b"last"])
        values.append((2 * BATCHES, b"last"))
        node.kill()
    return directory, values


@pytest.fixture
def stored(killed: tuple[Path, Values], tmp_path: Path) -> tuple[Path, Values]:
    """A copy of it, to be damaged."""
    shutil.copytree(killed[0], tmp_path / "data")
    return tmp_path / "data", killed[1]


def segments(directory: Path) -> list[Path]:
    """Those of the stream."""
    found = next(path for path in directory.rglob("*.log") if b"0-0 " in path.read_bytes()).parent
    return sorted(found.glob("*.log"))


def served(node: NodeProcess, stream: str, lost: Lost = ()) -> Values:
    """What an unmodified Kafka client reads round what is lost; and the node takes new records behind it."""
    read: Values = []
    with duramen.connect(node.http) as client:
        end = client.streams.describe(stream).partitions[0].end_offset
        starts, stops = [0, *(last + 1 for _, last in lost)], [*(first for first, _ in lost), end]
        for start, stop in zip(starts, stops, strict=True):
            if start < stop:
                read += consumed(node, stream, start, stop)
        assert client.produce(stream, [b"new"])[0].offset == end
    return read


def consumed(node: NodeProcess, stream: str, start: int, stop: int) -> Values:
    read: Values = []
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "other", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(stream, 0, start)])
        while not read or read[-1][0] < stop - 1:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            read.append((message.offset() or 0, message.value() or b""))
        return read
    finally:
        consumer.close()


def without(values: Values, lost: Lost) -> Values:
    return [(offset, value) for offset, value in values if not any(low <= offset <= high for low, high in lost)]


Start = Callable[[], NodeProcess]


@pytest.fixture
def saved(new_node: Callable[..., NodeProcess]) -> Start:
    """Starts a node on the new directory."""
    return lambda: new_node(directory="saved").start()


def salvaged(run: Run, code: int) -> tuple[dict[str, Any], Lost]:
    """Run it; the document, and what is lost of the only stream of users."""
    ended = run("log", "salvage", "data", "saved", "--format", "json")
    assert ended.code == code, ended
    document = json.loads(ended.out)
    (log,) = [log for log in document["logs"] if not log["stream"].startswith("__")]
    return document, [(lost["first_offset"], lost["last_offset"]) for lost in log["lost"]]


def check_group(node: NodeProcess) -> None:
    with duramen.connect(node.http) as client:
        (offset,) = client.groups.describe(GROUP).offsets
        assert (offset.stream, offset.committed_offset) == ("s", 2 * BATCHES)


def test_nothing_is_lost(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    ended = duramen_alone("log", "salvage", "data", "saved")
    assert (ended.code, ended.err) == (0, "")
    assert " batches, " in ended.out
    assert "Nothing is lost.\nStart a node on it: duramen serve --data-dir saved\n" in ended.out
    node = saved()
    check_group(node)
    assert served(node, "s") == stored[1]
    again = duramen_alone("log", "salvage", "data", "saved")
    assert (again.code, "not empty" in again.err) == (1, True)


def test_a_flipped_bit(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    directory, values = stored
    path = segments(directory)[1]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    document, lost = salvaged(duramen_alone, 3)
    first = int(path.stem)
    assert (lost, document["whole"]) == ([(first, first + 1)], True)
    node = saved()
    check_group(node)
    assert served(node, "s", lost) == without(values, lost)
    # Nobody is led over the gap without hearing of it.
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "other", "check.crcs": True})
    consumer.assign([TopicPartition("s", 0, first)])
    message = consumer.poll(60)
    consumer.close()
    assert message is None or message.error() is not None


@pytest.mark.long
def test_a_cut_segment(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    directory, values = stored
    path, following = segments(directory)[1:3]
    path.write_bytes(path.read_bytes()[:-20])
    _, lost = salvaged(duramen_alone, 3)
    assert lost == [(int(following.stem) - 2, int(following.stem) - 1)]
    assert served(saved(), "s", lost) == without(values, lost)


@pytest.mark.long
def test_a_lost_checkpoint(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    directory, values = stored
    for path in directory.glob("checkpoint-*"):
        path.unlink()
    document, lost = salvaged(duramen_alone, 3)
    assert (lost, document["whole"]) == ([], False)
    assert any(finding.startswith("no checkpoint is sound") for finding in document["findings"])
    node = saved()
    check_group(node)
    assert served(node, "s") == values


@pytest.mark.long
def test_a_lost_write_ahead_log(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    directory, values = stored
    shutil.rmtree(directory / "wal")
    document, lost = salvaged(duramen_alone, 3)
    assert (lost, document["whole"]) == ([], False)
    node = saved()
    check_group(node)
    # The last record was in the write-ahead log alone: nothing is left that could name it.
    assert served(node, "s") == values[:-1]


@pytest.mark.long
def test_a_lost_metadata_log(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    directory, values = stored
    shutil.rmtree(directory / "logs" / "1")
    document, lost = salvaged(duramen_alone, 3)
    (name,) = [name for name in document["streams_without_name"] if not name.startswith("__")]
    assert (lost, name.startswith("recovered-")) == ([], True)
    node = saved()
    assert served(node, name) == values
    with duramen.connect(node.http) as client:
        assert client.streams.describe(name).config["retention.ms"] == "-1"


@pytest.mark.long
def test_truncate(stored: tuple[Path, Values], duramen_alone: Run, saved: Start) -> None:
    words = ("log", "truncate", "data", "saved", "--stream", "s", "--to", "11")
    ended = duramen_alone(*words)
    assert ended.code == 0, ended
    assert [line.split() for line in ended.out.splitlines()[1:2]] == [["s", "0", "10", str(2 * BATCHES), "cut", "off"]]
    node = saved()
    assert served(node, "s") == stored[1][:10]
    assert served(node, "s") == [*stored[1][:10], (10, b"new")]


@pytest.mark.long
def test_what_a_node_holds_is_left_alone(new_node: Callable[..., NodeProcess], duramen_alone: Run) -> None:
    with new_node():
        for words in (("salvage", "data", "saved"), ("truncate", "data", "saved", "--stream", "s", "--to", "0")):
            ended = duramen_alone("log", *words)
            assert (ended.code, "data is in use by a running node; stop it" in ended.err) == (1, True)


def test_an_unfinished_directory_is_refused(stored: tuple[Path, Values], duramen_alone: Run) -> None:
    directory = stored[0].parent / "saved"
    shutil.copytree(stored[0], directory)
    (directory / "unfinished").write_text("duramen log salvage data saved")
    words = ("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats", "off")
    ended = duramen_alone("serve", "--data-dir", "saved", *words)
    assert ended.code == 1
    assert "is unfinished: `duramen log salvage data saved` was interrupted" in ended.err
