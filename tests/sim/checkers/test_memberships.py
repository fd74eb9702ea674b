"""The model of a group: what it takes for a broken promise, and what it does not."""

import pytest

from duramen.sim.checkers.memberships import GroupModel
from duramen.sim.machine.trace import BrokenPromise


def assigned() -> GroupModel:
    """A group in generation 1, in which m owns a-0 and n owns a-1."""
    group = GroupModel("g")
    group.disturbed()
    group.joined(1, "m")
    group.led(1, ["m", "n"])
    group.gives(1, {"m": b"a-0", "n": b"a-1"})
    group.synced(1, "m", b"a-0", ["a-0"])
    return group


def test_a_generation_is_settled_once_all_of_it_know_what_they_own() -> None:
    group = assigned()
    assert not group.is_settled(1)
    group.synced(1, "n", b"a-1", ["a-1"])
    assert group.is_settled(1)
    group.disturbed()
    assert not group.is_settled(1)


def test_a_generation_that_is_assigned_after_a_restart_is_disturbed_like_any_other() -> None:
    group = GroupModel("g")
    group.joined(1, "m")
    group.led(1, ["m"])
    group.gives(1, {"m": b""})
    group.restarted(lost=False)
    group.synced(1, "m", b"", [])
    assert group.is_settled(1)
    group.disturbed()
    assert not group.is_settled(1)


def test_a_generation_that_comes_again_after_a_restart_has_the_members_of_then() -> None:
    group = GroupModel("g")
    group.joined(1, "m")
    group.led(1, ["m"])
    group.restarted(lost=False)
    group.joined(1, "m")
    group.led(1, ["m", "n"])
    group.gives(1, {"m": b""})
    group.synced(1, "m", b"", [])
    assert not group.is_settled(1)
    group.synced(1, "n", b"", [])
    assert group.is_settled(1)


def test_nobody_gets_what_the_leader_did_not_give() -> None:
    group = assigned()
    with pytest.raises(BrokenPromise, match="its leader gave it another"):
        group.synced(1, "n", b"a-0", ["a-0"])


def test_a_partition_has_one_owner_in_a_generation_over_a_restart_too() -> None:
    group = assigned()
    group.restarted(lost=False)
    group.gives(1, {"m": b"", "n": b"a-0"})
    with pytest.raises(BrokenPromise, match="a-0 is owned by m and by n in generation 1"):
        group.synced(1, "n", b"a-0", ["a-0"])


def test_a_generation_that_was_assigned_is_there_after_a_restart() -> None:
    group = assigned()
    group.joined(2, "n")
    group.restarted(lost=False)
    group.joined(1, "m")  # that of 2 was never stored
    group.joined(2, "m")
    with pytest.raises(BrokenPromise, match="generation 0 follows 2"):
        group.joined(0, "m")


def test_a_generation_has_one_leader() -> None:
    group = assigned()
    with pytest.raises(BrokenPromise, match="led by m and by n"):
        group.joined(1, "n")


def test_nobody_of_an_earlier_generation_is_listened_to() -> None:
    group = assigned()
    group.accepted("a commit", 1, told=1)
    with pytest.raises(BrokenPromise, match="a commit of generation 1 is taken in generation 2"):
        group.accepted("a commit", 1, told=2)


def test_nothing_is_known_of_a_group_whose_log_was_damaged() -> None:
    group = assigned()
    group.restarted(lost=True)
    group.joined(0, "n")
    group.synced(1, "n", b"a-0", ["a-0"])
    group.accepted("a commit", 1, told=2)
    assert not group.is_settled(1)
