"""A new directory from what is left of a damaged one: whatever is damaged, what is served is what was written there."""

import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.golden.make import content
from tests.golden.test_golden import GOLDEN, golden

from duramen.base.errors import DirectoryUnusable, OffsetOutOfRange, StreamNotFound
from duramen.controller.quorum.snapshots import MetadataSnapshot, SnapshotFiles, encode_snapshot_file
from duramen.host.files import HostFileSystem
from duramen.metadata.events import Event, PartitionChanged, StreamCreated
from duramen.metadata.snapshot import encode_snapshot
from duramen.node.names import read_names
from duramen.node.salvage import Partial, Salvaged, SalvagedEnd, salvage
from duramen.raft.epochs import EpochEnd
from duramen.raft.voters import NO_VOTERS
from duramen.sim.broker import ManualBroker
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.directory import read_directory_id
from duramen.storage.salvage.reader import read_leftovers

SEEDS = 60
FIRST = "00000000000000000000"
METADATA = f"logs/1/{FIRST}.log"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory of a node that was killed, with everything in it that the format has."""
    with tarfile.open(GOLDEN / "v1" / "directory.tar.gz") as archive:
        archive.extractall(tmp_path / "src", filter="data")
    return tmp_path / "src"


def served(directory: Path) -> dict[str, Any]:
    """What a node that starts on the directory serves of each partition."""
    hand = ManualBroker()
    hand.stop()
    hand.files, hand.rows = type(hand.files)(), MemoryStateStore()
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "lock":
            name = str(path.relative_to(directory))
            hand.files.make_directory(name.rpartition("/")[0])
            hand.files.open(name, create=True).write([path.read_bytes()], 0)
    hand.files.make_directory("wal")
    hand.files.make_directory("logs")
    hand.reports.clear()
    hand.start()
    assert all("of __consumer_offsets cannot be read" in report for report in hand.reports)
    return content(hand)


def flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def saved(source: Path) -> tuple[Salvaged, dict[str, Any]]:
    target = source.parent / "dst"
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    done = salvage(source, target, maker="test")
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    return done, served(target)


def check(done: Salvaged, found: dict[str, Any], *, whole: bool = True) -> dict[str, list[int]]:
    """What is served is what was written, and what is not is named; returns the offsets that are lost."""
    lost: dict[str, list[int]] = {}
    expected = golden("v1")["partitions"]
    for log in done.logs:
        name = f"{log.stream}/{log.partition}"
        original = {record[0]: record for record in expected.get(name, {"records": []})["records"]}
        if name not in expected:
            original = {
                record[0]: record for of in expected.values() if of["log_id"] == log.log_id for record in of["records"]
            }
        # Where it begins may be lost with the checkpoint: then what was before is there again.
        start = min(original, default=0) if not done.whole else 0
        here = {record[0]: record for record in found["partitions"][name]["records"] if record[0] >= start}
        if name.startswith("__"):  # the node forgets offsets of streams that are not there under their names
            here = {offset: record for offset, record in here.items() if offset in original}
        assert all(record == original.get(offset) for offset, record in here.items()), name
        damage = [tuple(one) for one in found["partitions"][name]["damage"]]
        assert damage == log.lost
        missing = [offset for offset in original if offset not in here]
        if whole:
            assert [offset for offset in missing if not any(low <= offset <= high for low, high in damage)] == []
        if missing:
            lost[name] = missing
    return lost


def test_a_sound_directory_comes_back_whole(source: Path) -> None:
    done, found = saved(source)
    assert (done.whole, done.findings, done.renamed) == (True, [], [])
    assert check(done, found) == {}
    assert found["committed"] == golden("v1")["committed"]
    assert {log.stream for log in done.logs if log.lost != log.known} == set()
    for name, of in golden("v1")["partitions"].items():
        again = found["partitions"][name]
        assert (again["start_offset"], again["end_offset"]) == (of["start_offset"], of["end_offset"]), name
        assert [row[::2] for row in again["takeovers"]] == [row[::2] for row in of["takeovers"]], name
    # The bytes of every batch are the same: what is served from a segment is what the source's has.
    assert (source.parent / "dst" / METADATA).read_bytes().startswith((source / METADATA).read_bytes())


def test_a_flipped_bit_loses_its_batch_only(source: Path) -> None:
    flip(source / "logs/7" / f"{FIRST}.log", 150)
    done, found = saved(source)
    assert done.whole
    (finding,) = done.findings
    assert finding.startswith(f"logs/7/{FIRST}.log: bytes 98 to 196 ")
    assert check(done, found) == {"cut/0": [1]}


@pytest.mark.parametrize("position", [0, 7, 8, 11, 12, 15])
def test_a_damaged_header_loses_its_batch_only(source: Path, position: int) -> None:
    # Base offset, length and leader epoch, which no CRC covers.
    flip(source / "logs/7" / f"{FIRST}.log", 98 + position, 0x40 if position in {0, 8, 12} else 2)
    done, found = saved(source)
    assert check(done, found) == {"cut/0": [1]}


def test_the_write_ahead_log_fills_what_a_segment_lost(source: Path) -> None:
    # Its batches are in the frames that the older checkpoint needs.
    path = source / "logs/3" / f"{1:020}.log"
    flip(path, 130)
    done, found = saved(source)
    assert done.findings
    assert check(done, found) == {}


def test_a_cut_segment(source: Path) -> None:
    path = source / "logs/7" / f"{5:020}.log"
    path.write_bytes(path.read_bytes()[:300])
    done, found = saved(source)
    assert check(done, found) == {"cut/0": [8, 9]}


def test_segments_that_are_gone(source: Path) -> None:
    (source / "logs/7" / f"{5:020}.log").unlink()
    done, found = saved(source)
    assert check(done, found) == {"cut/0": [5, 6, 7, 8, 9]}


def test_without_a_checkpoint(source: Path) -> None:
    for path in source.glob("checkpoint-*"):
        path.unlink()
    done, found = saved(source)
    assert not done.whole
    assert found["committed"] == golden("v1")["committed"]
    assert check(done, found) == {}


def test_one_checkpoint_is_enough(source: Path) -> None:
    newest = max(source.glob("checkpoint-*"))
    flip(newest, 40)
    done, found = saved(source)
    assert done.whole
    assert check(done, found) == {}


def test_without_the_write_ahead_log(source: Path) -> None:
    shutil.rmtree(source / "wal")
    done, found = saved(source)
    assert not done.whole
    assert check(done, found, whole=False) == {
        "plain/0": [60], "idempotent/0": [4], "__consumer_offsets/1": [1],
    }  # fmt: skip
    assert any("no file in wal/" in finding for finding in done.findings)


def test_without_the_description(source: Path) -> None:
    (source / "duramen.json").unlink()
    done, found = saved(source)
    assert check(done, found) == {}
    assert len(done.findings) == 1


def test_without_the_description_and_the_checkpoints(source: Path) -> None:
    # The write-ahead log names the directory too.
    for path in (*source.glob("checkpoint-*"), source / "duramen.json"):
        path.unlink()
    done, found = saved(source)
    assert check(done, found) == {}


def test_streams_without_names(source: Path) -> None:
    shutil.rmtree(source / "logs/1")
    for path in (source / "wal").iterdir():
        path.unlink()
    done, found = saved(source)
    assert len(done.renamed) == 6  # plain, fast, memory has no records, idempotent, cut, damaged; consumer offsets
    assert "__consumer_offsets" in done.renamed
    recovered = [name for name in done.renamed if name.startswith("recovered-")]
    assert found["committed"] == golden("v1")["committed"] or not done.whole
    assert sorted(name.split("/")[0] for name in found["partitions"] if name.startswith("recovered-")).count(
        recovered[0]
    )
    check(done, found, whole=False)


def test_a_damaged_metadata_log_starts_again(source: Path) -> None:
    data = (source / METADATA).read_bytes()
    flip(source / METADATA, data.index(b'"idempotent"'))
    done, found = saved(source)
    assert not done.whole
    (name,) = done.renamed
    assert name.startswith("recovered-")
    assert check(done, found) == {}
    assert found["committed"] == golden("v1")["committed"]


@pytest.mark.variants(1)
@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_whatever_is_damaged_nothing_wrong_is_served(source: Path, first: int) -> None:
    for seed in range(first, first + 20):
        drawn = random.Random(seed)
        damaged = source.parent / f"damaged-{seed}"
        shutil.copytree(source, damaged)
        paths = sorted(path for path in damaged.rglob("*") if path.is_file())
        for path in drawn.sample(paths, drawn.randint(1, 4)):
            harm(path, drawn)
        target = source.parent / f"new-{seed}"
        done = salvage(damaged, target, maker="test")
        check(done, served(target), whole=False)
        shutil.rmtree(damaged)
        shutil.rmtree(target)


def harm(path: Path, drawn: random.Random) -> None:
    size = path.stat().st_size
    kinds: list[Callable[[], object]] = [
        path.unlink,
        lambda: path.write_bytes(path.read_bytes()[: drawn.randrange(size)]),
        *[lambda: flip(path, drawn.randrange(min(size, 8192)), 1 << drawn.randrange(8))] * 6,
    ]
    drawn.choice(kinds)()


def test_truncate(source: Path) -> None:
    target = source.parent / "dst"
    done = salvage(source, target, maker="test", cut=SalvagedEnd("plain", 0, 44))
    (log,) = [log for log in done.logs if (log.stream, log.partition) == ("plain", 0)]
    # The batch that holds it begins before it, and goes whole.
    assert (log.end_offset, log.cut, log.lost) == (42, (42, 60), [])
    found = served(target)["partitions"]
    expected = golden("v1")["partitions"]
    assert found["plain/0"]["records"] == [record for record in expected["plain/0"]["records"] if record[0] < 42]
    assert found["fast/0"]["records"] == expected["fast/0"]["records"]


def test_truncate_wants_what_is_there(source: Path) -> None:
    target = source.parent / "dst"
    with pytest.raises(StreamNotFound, match="no stream nope"):
        salvage(source, target, maker="test", cut=SalvagedEnd("nope", 0, 1))
    with pytest.raises(StreamNotFound, match="partition 7"):
        salvage(source, target, maker="test", cut=SalvagedEnd("plain", 7, 1))
    with pytest.raises(OffsetOutOfRange, match="31 to 61: 62 must lie between"):
        salvage(source, target, maker="test", cut=SalvagedEnd("plain", 0, 62))
    assert not target.exists()


def test_directories_that_do_not_fit(source: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "other").mkdir()
    for source_, target, said in (
        (source, tmp_path / "full", "not empty"),
        (source, source / "dst", "lie in one another"),
        (source, tmp_path, "lie in one another"),
        (tmp_path / "other", tmp_path / "dst", "not a data directory"),
        (tmp_path / "full" / "file", tmp_path / "dst", "not a directory"),
    ):
        with pytest.raises(DirectoryUnusable, match=said):
            salvage(source_, target, maker="test")


def test_an_interrupted_run_leaves_a_directory_that_says_so(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = source.parent / "dst"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("duramen.storage.salvage.writer.write_checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            salvage(source, target, maker="duramen log salvage src dst")
    with pytest.raises(DirectoryUnusable, match=r"unfinished: `duramen log salvage src dst` was interrupted"):
        served(target)
    with pytest.raises(DirectoryUnusable, match="not empty"):
        salvage(source, target, maker="test")


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """A directory of a cluster's node that was killed; the cluster had three nodes and two partitions of `orders`."""
    with tarfile.open(GOLDEN / "level1" / "cluster.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "node1"


def orders(found: dict[str, Any]) -> list[int]:
    """How many batches the node serves of each partition of `orders`."""
    return [len(found["partitions"][f"orders/{number}"]["records"]) for number in (0, 1)]


def test_a_node_of_a_cluster_comes_back_as_a_standalone_one(member: Path) -> None:
    done, found = saved(member)
    assert (done.whole, done.findings, done.renamed, done.partial) == (True, [], [], [])
    assert min(orders(found)) > 0
    assert found["committed"]


def snapshot(member: Path, *events: Event) -> None:
    """Have the node keep a snapshot of what its metadata log and these events come to, in the place of both."""
    files = HostFileSystem(str(member))
    state = read_names(files, read_leftovers(files, None)).state
    for event in events:
        state.apply(event)
    end = EpochEnd(1, 1 << 20)
    SnapshotFiles(files).write(end, encode_snapshot_file(MetadataSnapshot(end, NO_VOTERS, encode_snapshot(state))))


def test_names_that_only_a_snapshot_has_come_back(member: Path) -> None:
    created = StreamCreated("early", str(UUID(int=1 << 100)), 3, {"retention.ms": "-1"})
    snapshot(member, created)
    done, found = saved(member)
    assert (done.whole, done.renamed) == (True, [])
    assert min(orders(found)) > 0
    assert [name for name in found["partitions"] if name.startswith("early/")] == ["early/0", "early/1", "early/2"]


def test_partitions_that_this_node_may_lack_records_of_are_named(member: Path) -> None:
    files = HostFileSystem(str(member))
    state = read_names(files, read_leftovers(files, None)).state
    (mine,) = [node_id for node_id, name in state.nodes.items() if name == str(read_directory_id(files, str(member)))]
    stream, others = str(state.streams["orders"].id), tuple(set(state.nodes) - {mine})
    elsewhere = StreamCreated("elsewhere", str(UUID(int=1 << 100)), 1)
    snapshot(
        member, elsewhere, PartitionChanged(elsewhere.id, 0, 0, leader=others[0], replicas=others, isr=others),
        PartitionChanged(stream, 0, 1 << 20, isr=(mine,)), PartitionChanged(stream, 1, 1 << 20, isr=others),
    )  # fmt: skip
    done, _ = saved(member)
    named = [one for one in done.partial if not one.stream.startswith("__")]
    assert named == [Partial("elsewhere", 0, held=False), Partial("orders", 1, held=True)]
