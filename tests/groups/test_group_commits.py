"""Who may commit, and what is left of a group after a restart."""

from tests.groups.driver import Driver

from duramen.base.errors import IllegalGeneration, RebalanceInProgress, UnknownMember
from duramen.groups.values import GroupState


def test_anybody_may_commit_to_an_empty_group_without_a_generation() -> None:
    drive = Driver()
    assert drive.commit("", -1) is None
    (known,) = drive.stable(None)
    assert drive.commit("", -1) is UnknownMember
    drive.leave(known)
    assert drive.commit("", -1) is None
    assert drive.commit("anybody", drive.group.generation) is UnknownMember


def test_commits_by_state() -> None:
    """During a rebalance a member may still commit what it has read; between its join and its assignment it may not."""
    drive = Driver()
    first, second = drive.stable(None, None)
    assert drive.commit(first) is None
    drive.join(first)
    assert drive.state() is GroupState.PREPARING
    assert drive.commit(second) is None
    drive.join(second)
    assert drive.state() is GroupState.COMPLETING
    assert drive.commit(second) is RebalanceInProgress
    assert drive.commit(second, transactional=True) is None
    for transactional in (False, True):
        assert drive.commit(second, drive.group.generation - 1, transactional=transactional) is IllegalGeneration
    drive.assign()
    assert drive.commit(second) is None


def test_members_have_what_they_had_until_they_are_assigned_anew() -> None:
    drive = Driver()
    first, second = drive.stable(None, None)
    had = {member.id: member.assignment for member in drive.group.members}
    assert all(had.values())
    drive.join(first)
    assert {member.id: member.assignment for member in drive.group.members} == had
    drive.join(second)
    assert {member.id: member.assignment for member in drive.group.members} == had
    drive.join("")
    assert not any(member.assignment for member in drive.group.members)


def test_a_stable_group_goes_on_after_a_restart() -> None:
    drive = Driver()
    first, second = drive.stable(None, "two")
    before = drive.group.snapshot()
    drive.restart()
    assert drive.group.snapshot() == before
    assert drive.state() is GroupState.STABLE
    assert drive.heartbeat(first) is None
    assert drive.sync(second, instance="two").assigned == second.encode()
    assert drive.join(instance="two").joined.generation == before.generation


def test_after_a_restart_members_have_a_whole_session_to_be_heard_of() -> None:
    drive = Driver()
    first, second = drive.stable(None, None)
    drive.advance(900)
    drive.restart()
    drive.advance(900)
    drive.heartbeat(first)
    drive.advance(100)
    assert [member.id for member in drive.group.members] == [first]
    assert drive.heartbeat(second) is UnknownMember


def test_a_generation_that_was_not_stored_is_over_after_a_restart() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    drive.join(known)
    assert drive.group.generation == 2
    drive.restart()
    assert drive.sync(known, generation=2).refused is IllegalGeneration
    assert drive.join(known).joined.generation == 2


def test_an_empty_group_is_empty_after_a_restart() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    drive.leave(known)
    drive.restart()
    assert (drive.state(), drive.group.generation) == (GroupState.EMPTY, 2)
    assert drive.join().joined.generation == 3
