"""The ballot's file: crashed in every call of writing it, it is the old or the new one; damaged, it is refused."""

import random

import pytest

from duramen.base.errors import LogDamaged
from duramen.controller.quorum.ballot_file import BallotFile, Promised
from duramen.raft.ballots import Ballot
from duramen.raft.voters import ReplicaId, Voter, Voters
from duramen.sim.machine.disk import Crashed, MemoryFileSystem

ME, OTHER = ReplicaId(1, "a"), ReplicaId(2, "b")
OLD = Promised(ME, Ballot(3, ME), Voters([Voter(ME, "h:1"), Voter(OTHER)]))
NEW = OLD._replace(ballot=Ballot(4, OTHER))
PATH = "quorum/ballot"


def with_old() -> MemoryFileSystem:
    files = MemoryFileSystem()
    assert BallotFile(files).read() is None
    BallotFile(files).write(OLD)
    return files


def test_what_is_written_is_read() -> None:
    files = with_old()
    assert BallotFile(files).read() == OLD
    BallotFile(files).write(NEW)
    files.crash()
    assert BallotFile(files).read() == NEW
    BallotFile(files).write(Promised(ME, Ballot(9)))
    assert BallotFile(files).read() == Promised(ME, Ballot(9))


def test_a_crash_in_each_call_leaves_the_old_or_the_new_one() -> None:
    calls = MemoryFileSystem()
    BallotFile(calls).read()
    before = calls.calls
    BallotFile(calls).write(OLD)
    count = calls.calls - before
    assert count >= 4
    found = set()
    for call in range(1, count + 1):
        for seed in [None, *range(40)]:
            files = with_old()
            files.crash_at = files.calls + call
            with pytest.raises(Crashed):
                BallotFile(files).write(NEW)
            files.crash(None if seed is None else random.Random(seed))
            kept = BallotFile(files).read()
            assert kept in (OLD, NEW)
            found.add(kept)
            # What was read is on disk: no later loss of power takes it back.
            files.crash()
            assert BallotFile(files).read() == kept
    assert found == {OLD, NEW}


def test_a_first_ballot_that_is_never_finished_is_none() -> None:
    for call in range(1, 8):
        files = MemoryFileSystem()
        files.crash_at = call
        try:
            BallotFile(files).read()
            BallotFile(files).write(OLD)
        except Crashed:
            pass
        files.crash(random.Random(call))
        assert BallotFile(files).read() in (None, OLD)


def test_a_kill_between_the_new_name_and_its_sync_is_made_good() -> None:
    files = with_old()
    files.crash_at = files.calls + 4
    with pytest.raises(Crashed, match="rename"):
        BallotFile(files).write(NEW)
    files.end_process()
    assert BallotFile(files).read() == NEW
    files.crash()
    assert BallotFile(files).read() == NEW


def test_every_cut_and_every_flipped_bit_is_refused() -> None:
    files = with_old()
    sound = files.content(PATH)
    for size in range(len(sound)):
        files.replace(PATH, sound[:size])
        with pytest.raises(LogDamaged, match="quorum/ballot"):
            BallotFile(files).read()
    for place in range(len(sound)):
        files.replace(PATH, sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(LogDamaged, match="quorum/ballot"):
            BallotFile(files).read()
