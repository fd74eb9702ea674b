"""The file that says which cluster a directory belongs to: crashed in every call, it is the old or the new one."""

import random
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DirectoryUnusable
from duramen.controller.quorum.small_file import WholeFile
from duramen.node.cluster.identity import BelongingFile
from duramen.raft.forming.values import ClusterProposal, FormationAttempt, FormationDiskState
from duramen.raft.voters import ReplicaId, Voter, Voters
from duramen.sim.machine.disk import Crashed, MemoryFileSystem

PATH = "quorum/cluster"
ONE, TWO = ReplicaId(1, str(UUID(int=1))), ReplicaId(2, str(UUID(int=2)))
VOTERS = Voters([Voter(ONE, "h:1"), Voter(TWO, "h:2")])
OLD = FormationDiskState(3, ClusterProposal(FormationAttempt(ONE, 7), ("h:1", "h:2"), VOTERS))
NEW = FormationDiskState(3, None, OLD.promise.attempt.cluster_id if OLD.promise else None, VOTERS)

replicas = st.builds(ReplicaId, st.integers(0, (1 << 31) - 1), st.uuids().map(str))
sets = st.lists(st.builds(Voter, replicas, st.text(max_size=20)), max_size=5, unique_by=lambda one: one.id.node_id)
voters = sets.map(Voters)
proposals = st.builds(
    ClusterProposal,
    st.builds(FormationAttempt, replicas, st.integers(0, 1 << 40)),
    st.lists(st.text(), max_size=4).map(tuple),
    voters,
)
kepts = st.builds(
    FormationDiskState, st.integers(0, 1 << 40), st.none() | proposals, st.none() | st.uuids(), voters, st.booleans()
)


def test_whether_it_is_to_vote_in_the_place_of_another_is_kept() -> None:
    files = with_old()
    for replaces in (True, True, False):
        BelongingFile(files).replace(replaces=replaces)
        assert BelongingFile(files).read() == OLD._replace(replaces=replaces)


def test_a_file_that_does_not_say_so_was_written_before_that_was_kept() -> None:
    files = with_old()
    row = msgspec.msgpack.decode(WholeFile(files, "cluster", b"DURCLUS1").read() or b"")
    WholeFile(files, "cluster", b"DURCLUS1").write(msgspec.msgpack.encode(row[:-1]))
    assert BelongingFile(files).read() == OLD


def with_old() -> MemoryFileSystem:
    files = MemoryFileSystem()
    assert BelongingFile(files).read() == FormationDiskState()
    BelongingFile(files).write(OLD)
    return files


@given(kepts)
def test_what_is_written_is_read(kept: FormationDiskState) -> None:
    files = with_old()
    BelongingFile(files).write(kept)
    files.crash()
    assert BelongingFile(files).read() == kept


def test_a_crash_in_each_call_leaves_the_old_or_the_new_one() -> None:
    files = with_old()
    before = files.calls
    BelongingFile(files).write(NEW)
    count = files.calls - before
    assert count >= 4
    found = set()
    for call in range(1, count + 1):
        for seed in [None, *range(20)]:
            files = with_old()
            files.crash_at = files.calls + call
            with pytest.raises(Crashed):
                BelongingFile(files).write(NEW)
            files.crash(None if seed is None else random.Random(seed))
            kept = BelongingFile(files).read()
            assert kept in (OLD, NEW)
            found.add(kept)
            # What was read is on disk: no later loss of power takes it back.
            files.crash()
            assert BelongingFile(files).read() == kept
    assert found == {OLD, NEW}


def test_a_file_with_any_byte_changed_or_cut_off_is_refused() -> None:
    files = with_old()
    file = files.open(PATH)
    data = bytes(file.read(0, file.size()))
    for at in range(len(data)):
        file.write([data[:at], bytes([data[at] ^ 1]), data[at + 1 :]], 0)
        with pytest.raises(DirectoryUnusable, match="quorum/cluster is damaged"):
            BelongingFile(files).read()
    file.write([data], 0)
    for size in range(len(data)):
        file.truncate(size)
        with pytest.raises(DirectoryUnusable, match=r"quorum/cluster is (damaged|cut off)"):
            BelongingFile(files).read()
        file.write([data], 0)
    assert BelongingFile(files).read() == OLD
