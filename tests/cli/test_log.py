"""`duramen log`."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.cli.command import Run
from tests.golden.make import ARCHIVE, CONTENT
from tests.golden.test_golden import GOLDEN

import duramen
from duramen.codec.batch import BatchInput, encode, stamp
from duramen.codec.quorum import LeaderChange, SnapshotGap, VoterRow, VotersSet, encode_control
from duramen.metadata.events import StreamCreated, encode_event
from duramen.node.process import NodeProcess

FIRST = "00000000000000000000"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A data directory of which the content is known."""
    with tarfile.open(GOLDEN / "v1" / ARCHIVE) as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    return tmp_path / "golden"


def lines(run: Run, *words: str) -> list[dict[str, Any]]:
    ended = run(*words, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    return [json.loads(line) for line in ended.out.splitlines()]


def test_dump_of_the_write_ahead_log(golden: Path, duramen_alone: Run) -> None:
    path = str(golden / "wal" / "000000.wal")
    frames = lines(duramen_alone, "log", "dump", path)
    description = json.loads((golden / "duramen.json").read_text())
    assert (frames[0]["type"], frames[0]["directory_id"]) == ("FILE", description["directory_id"])
    assert [frame["position"] for frame in frames[1:]] == [
        frame["position"] + frame["size_bytes"] for frame in frames[:-1]
    ]
    assert {frame["type"] for frame in frames} == {"FILE", "TAKEOVER", "APPEND"}
    tail = next(frame for frame in frames if frame["log_id"] == 2 and frame["type"] == "APPEND")
    assert (tail["batch"]["base_offset"], tail["batch"]["record_count"]) == (60, 1)
    shown = duramen_alone("log", "dump", path, "--records").out
    assert " TAKEOVER log 2 leader-epoch 3 leader-id 1 first-offset 60\n" in shown
    assert "value 'tail'" in shown
    content = bytearray((golden / "wal" / "000000.wal").read_bytes())
    content[frames[1]["position"] + 40] ^= 1
    (golden / "wal" / "000000.wal").write_bytes(content)
    damaged = lines(duramen_alone, "log", "dump", path)[1]
    assert (damaged["position"], damaged["problem"]) == (frames[1]["position"], "no sound frame")
    content[0] ^= 1
    (golden / "wal" / "000000.wal").write_bytes(content)
    assert "does not begin with a valid frame" in duramen_alone("log", "dump", path).err


def test_dump_of_a_checkpoint(golden: Path, duramen_alone: Run) -> None:
    path = max(golden.glob("checkpoint-*"))
    shown = duramen_alone("log", "dump", str(path))
    assert shown.code == 0
    assert " partition 0 durability sync offsets 0-3 takeovers 1 producers 0 segments 0:360 lost 1-1\n" in shown.out
    document = json.loads(duramen_alone("log", "dump", str(path), "--format", "json").out)
    (log,) = [log for log in document["logs"] if log["lost"]]
    assert log["lost"] == [{"first_offset": 1, "last_offset": 1}]
    path.write_bytes(path.read_bytes()[:-1])
    assert "is damaged: it does not match its CRC" in duramen_alone("log", "dump", str(path)).err


@pytest.mark.long
def test_dump_of_what_a_quorum_writes(tmp_path: Path, duramen_alone: Run) -> None:
    voters = (VoterRow(1, UUID(int=7), "host:9093"), VoterRow(2, UUID(int=8)))
    content = bytearray()
    for offset, control in ((0, VotersSet(voters, 1)), (1, LeaderChange(2, voters)), (2, SnapshotGap(40))):
        batch = encode_control(control, 5)
        stamp(batch, offset, offset + 3)
        content += batch
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(content)
    found = lines(duramen_alone, "log", "dump", str(path), "--records")
    assert [batch["quorum"]["type"] for batch in found] == ["voters", "leader-change", "snapshot-gap"]
    assert found[0]["quorum"]["voters"][0] == {
        "node_id": 1, "directory_id": str(UUID(int=7)), "endpoint": "host:9093",
    }  # fmt: skip
    assert (found[1]["quorum"]["leader_id"], found[2]["quorum"]["offsets"]) == (2, 40)
    shown = duramen_alone("log", "dump", str(path), "--records").out
    assert f"  offset 1 leader-change leader-id 2 voters 1/{UUID(int=7)} 2/{UUID(int=8)}\n" in shown
    assert f"  offset 0 voters leader-id 1 voters 1/{UUID(int=7)} host:9093 2/{UUID(int=8)}\n" in shown


def test_dump_hides_the_secrets_of_queue_spaces(tmp_path: Path, duramen_alone: Run) -> None:
    secret = bytes(range(16)).hex()
    event = StreamCreated("mail", str(UUID(int=7)), 2, {"kind": "queues"}, secret=secret)
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(encode([BatchInput(0, None, encode_event(event)), BatchInput(0, None, secret.encode())]))
    created, other = lines(duramen_alone, "log", "dump", str(path), "--records")[0]["records"]
    assert json.loads(created["value"])["secret"] == "(hidden)"
    assert other["value"] == secret
    assert duramen_alone("log", "dump", str(path), "--records").out.count(secret) == 1


def test_stats(golden: Path, duramen_alone: Run) -> None:
    before = {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()}
    ended = duramen_alone("log", "stats", "golden", "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    logs = {f"{log['stream']}/{log['partition']}": log for log in document["logs"]}
    for name, partition in json.loads((GOLDEN / "v1" / CONTENT).read_text())["partitions"].items():
        if name in logs:
            of = logs[name]
            assert (of["start_offset"], of["end_offset"]) == (partition["start_offset"], partition["end_offset"])
            assert of["lost"] == [{"first_offset": low, "last_offset": high} for low, high in partition["damage"]]
            assert of["records"] >= len(partition["records"])  # the first batch may begin before the start
    assert document["all"]["size_bytes"] == sum(log["size_bytes"] for log in logs.values())
    assert (document["wal"]["files"], document["wal"]["size_bytes"]) == (2, 2 << 20)
    assert 0 < document["wal"]["used_bytes"] < 4096
    shown = duramen_alone("log", "stats", "golden").out.splitlines()
    assert shown[0].split()[:2] == ["LOG", "STREAM"]
    assert shown[-1].startswith("The write-ahead log has 2 files, 2 MiB; a start would read ")
    assert {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_compression_shows(new_node: Callable[..., NodeProcess], duramen_alone: Run) -> None:
    with new_node() as node, duramen.connect(node.http, compression="zstd") as client:
        client.streams.create("s")
        client.produce("s", [b"a" * 100_000])
    (log,) = [
        log
        for log in json.loads(duramen_alone("log", "stats", "data", "--format", "json").out)["logs"]
        if log["stream"] == "s"
    ]
    assert log["decompressed_bytes"] > 100_000 > 10 * log["size_bytes"]


@pytest.mark.long
def test_only_data_directories_that_no_node_holds(
    new_node: Callable[..., NodeProcess], duramen_alone: Run, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    for name, said in (("nothing", "is not a directory"), ("other", "is not a data directory of Duramen")):
        ended = duramen_alone("log", "stats", name)
        assert (ended.code, said in ended.err) == (1, True)
    with new_node():
        for words in (("stats", "data"), ("dump", f"data/logs/1/{FIRST}.log")):
            ended = duramen_alone("log", *words)
            assert (ended.code, "is in use by a running node" in ended.err) == (1, True)
    meta = tmp_path / "data" / "duramen.json"
    meta.write_text(meta.read_text().replace('"format":1', '"format":2'))
    assert "has the storage format 2" in duramen_alone("log", "stats", "data").err


def test_log_dump(new_node: Callable[..., NodeProcess], duramen_alone: Run, tmp_path: Path) -> None:
    node = new_node().start()
    assert duramen_alone("stream", "create", "s", server=node.http).code == 0
    assert duramen_alone("produce", "s", "--key-separator", "=", stdin=b"k=v\nk2=v2\n", server=node.http).code == 0
    node.stop()
    (segment,) = [path for path in (tmp_path / "data" / "logs").rglob("*.log") if b"k2" in path.read_bytes()]
    dumped = duramen_alone("log", "dump", str(segment), "--records")
    assert dumped.code == 0
    assert " position 0 " in dumped.out
    assert "key 'k2' value 'v2'" in dumped.out
    (batch,) = [
        json.loads(line) for line in duramen_alone("log", "dump", str(segment), "--format", "json").out.splitlines()
    ]
    assert (batch["position"], batch["record_count"], batch["codec"], batch["problem"]) == (0, 2, "none", None)
    whole = json.loads(duramen_alone("log", "dump", str(segment), "--records", "--format", "json").out)
    second = {"offset": 1, "timestamp": batch["max_timestamp"], "key": "k2", "value": "v2", "headers": []}
    assert (whole["records"][1], len(whole["records"])) == (second, 2)
    compacted = segment.rename(segment.with_name(f"{segment.stem}.2.log"))
    assert duramen_alone("log", "dump", str(compacted), "--records").out == dumped.out
    compacted.rename(segment)
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    damaged = duramen_alone("log", "dump", str(segment))
    assert (damaged.code, "does not match its CRC; " in damaged.err) == (1, True)
    assert damaged.err.endswith("`duramen log salvage` saves the records around damage [segment-unreadable]\n")
    problem = json.loads(duramen_alone("log", "dump", str(segment), "--format", "json").out)["problem"]
    assert problem == "the batch does not match its CRC"
    segment.write_bytes(content[:-5])
    assert "the batch is cut off" in duramen_alone("log", "dump", str(segment)).err
    segment.write_bytes(b"\xff" * 100)
    assert "no record batch begins here" in duramen_alone("log", "dump", str(segment)).err
    for path, said in ((tmp_path / "nothing.txt", "is not a segment"), (tmp_path / "00.log", "cannot be read")):
        ended = duramen_alone("log", "dump", str(path))
        assert (ended.code, said in ended.err) == (1, True)
