"""Snapshot files: crashed in every call, damaged, and fetched in chunks that are lost, repeated and mixed up."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duramen.base.errors import BatchCorrupt
from duramen.controller.quorum.ballot_file import BallotFile
from duramen.controller.quorum.snapshot_chunks import Download, SnapshotBytes
from duramen.controller.quorum.snapshots import (
    MetadataSnapshot,
    SnapshotFiles,
    decode_snapshot_file,
    encode_snapshot_file,
)
from duramen.raft.epochs import EpochEnd
from duramen.raft.voters import ReplicaId, Voter, Voters
from duramen.sim.machine.disk import Crashed, MemoryFileSystem

LEADER = ReplicaId(1, "a")
VOTERS = Voters([Voter(LEADER, "h:1"), Voter(ReplicaId(2, "b"))])


def snapshot(number: int) -> MetadataSnapshot:
    return MetadataSnapshot(EpochEnd(number, 10 * number), VOTERS, b"state %d" % number)


def files_with(*numbers: int) -> MemoryFileSystem:
    files = MemoryFileSystem()
    BallotFile(files).read()
    for number in numbers:
        one = snapshot(number)
        SnapshotFiles(files).write(one.end, encode_snapshot_file(one))
    return files


def test_the_newest_two_are_kept() -> None:
    files = files_with(1, 2, 3)
    kept = SnapshotFiles(files)
    assert kept.ends() == [EpochEnd(3, 30), EpochEnd(2, 20)]
    assert kept.newest() == (snapshot(3), ())
    files.crash()
    assert kept.newest() == (snapshot(3), ())


def test_a_crash_in_each_call_leaves_the_old_or_the_new_one() -> None:
    found = set()
    for call in range(1, 7):
        for seed in range(20):
            files = files_with(1, 2)
            files.crash_at = files.calls + call
            with pytest.raises(Crashed):
                SnapshotFiles(files).write(snapshot(3).end, encode_snapshot_file(snapshot(3)))
            files.crash(random.Random(seed))
            newest, damaged = SnapshotFiles(files).newest()
            assert newest in (snapshot(2), snapshot(3))
            assert damaged == ()
            assert not any(path.endswith(".new") for path in files.paths())
            found.add(newest)
    assert found == {snapshot(2), snapshot(3)}


def test_a_damaged_one_is_named_and_the_one_before_it_taken() -> None:
    files = files_with(1, 2)
    path = max(path for path in files.paths() if path.endswith(".snapshot"))
    files.corrupt(path, 30)
    assert SnapshotFiles(files).newest() == (snapshot(1), (path,))


def test_every_cut_and_every_flipped_bit_is_refused() -> None:
    sound = encode_snapshot_file(snapshot(4))
    assert decode_snapshot_file(sound) == snapshot(4)
    for size in range(len(sound)):
        with pytest.raises(BatchCorrupt):
            decode_snapshot_file(sound[:size])
    for place in range(len(sound)):
        with pytest.raises(BatchCorrupt):
            decode_snapshot_file(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])


@given(st.binary(min_size=1, max_size=200), st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_download_ends_with_the_bytes_whatever_comes_twice_or_late(
    data: bytes, chunk_bytes: int, chance: random.Random
) -> None:
    end = EpochEnd(3, 30)
    download = Download()
    seen: list[SnapshotBytes] = [
        SnapshotBytes(ReplicaId(2, "b"), 1, end, 0, len(data), b"of another"),
        SnapshotBytes(LEADER, 1, EpochEnd(2, 30), 0, 1, b"x"),
    ]
    while len(download) < len(data):
        position = download.begin(LEADER.node_id, end)
        chunk = SnapshotBytes(LEADER, 1, end, position, len(data), data[position : position + chunk_bytes])
        seen.append(chunk)
        for one in [chance.choice(seen), chunk, chance.choice(seen)]:
            taken = download.take(one)
            assert not taken or one.position == len(download) - len(one.data)
    assert download.finish() == data
    assert download.begin(LEADER.node_id, end) == 0


def test_another_snapshot_or_another_leader_begins_anew() -> None:
    download = Download()
    assert download.begin(1, EpochEnd(3, 30)) == 0
    assert download.take(SnapshotBytes(LEADER, 1, EpochEnd(3, 30), 0, 9, b"abc"))
    assert download.begin(1, EpochEnd(3, 30)) == 3
    assert download.begin(2, EpochEnd(3, 30)) == 0
