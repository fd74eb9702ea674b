"""Static members: who comes back under the same instance id (KIP-345, KIP-814)."""

import struct

import pytest
from tests.groups.driver import Driver

from duramen.base.errors import FencedInstance, StorageFailed, UnknownMember
from duramen.groups.values import GroupState


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's subscription, version 1."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", len(owned)) + owned


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    """KIP-345: under a new id, with the assignment it had; whoever still uses the old id is fenced."""
    drive = Driver()
    first, second = drive.stable("one", "two")
    generation = drive.group.generation
    back = drive.join(instance="two").joined
    assert (back.generation, drive.state()) == (generation, GroupState.STABLE)
    assert back.member_id != second
    assert drive.sync(back.member_id, instance="two").assigned == second.encode()
    assert drive.heartbeat(first, instance="one") is None
    for act in (drive.heartbeat, drive.commit):
        assert act(second, instance="two") is FencedInstance
    assert drive.sync(second, instance="two").refused is FencedInstance
    assert drive.join(second, instance="two").refused is FencedInstance
    assert drive.leave(second, instance="two") is FencedInstance


def test_a_static_member_is_back_only_once_that_is_stored() -> None:
    """Else a crash would know only the old id, and fence the new one for ever."""
    drive = Driver()
    drive.stable("one")
    drive.hold_stores = True
    back = drive.join(instance="one")
    assert back.result is None
    drive.store()
    new_id = back.joined.member_id
    drive.restart()
    assert drive.heartbeat(new_id, instance="one") is None


def test_a_static_member_whose_return_cannot_be_stored_is_told() -> None:
    drive = Driver()
    drive.stable("one")
    drive.hold_stores = True
    back = drive.join(instance="one")
    drive.store(fail=True)
    assert back.refused is StorageFailed


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_leader_that_is_back_does_not_assign_again(can_skip: bool) -> None:
    """KIP-814: a new client is told to skip it, an old one is told that another leads."""
    drive = Driver()
    (old,) = drive.stable("one")
    back = drive.join(instance="one", can_skip=can_skip).joined
    if can_skip:
        assert (back.skip_assignment, back.leader_id, len(back.members)) == (True, back.member_id, 1)
    else:
        assert (back.skip_assignment, back.leader_id, back.members) == (False, old, ())
    assert drive.sync(back.member_id, instance="one").assigned == old.encode()


def test_what_a_static_member_owned_is_no_reason_for_a_rebalance() -> None:
    """Cooperative assignors put what is owned into the subscription: after a restart that is nothing."""
    drive = Driver()
    drive.stable("one", protocols=[("cooperative-sticky", subscription("t", "u", owned=b"partitions"))])
    drive.join(instance="one", protocols=[("cooperative-sticky", subscription("u", "t"))])
    assert drive.state() is GroupState.STABLE


@pytest.mark.parametrize(
    "protocols",
    [
        [("range", subscription("other"))],  # other topics
        [("sticky", subscription("t"))],  # another protocol
        [("range", b"\0\1")],  # damaged
        [("range", b"\0\1\x7f\xff\xff\xff")],
        [("range", b"\0\1\0\0\0\1\xff\xff")],
    ],
)
def test_a_static_member_that_comes_back_otherwise_starts_a_rebalance(protocols: list[tuple[str, bytes]]) -> None:
    drive = Driver()
    drive.stable("one", protocols=[("range", subscription("t"))])
    back = drive.join(instance="one", protocols=protocols)
    assert back.joined.generation == 2
    assert drive.state() is GroupState.COMPLETING


def test_a_static_member_that_comes_back_while_its_old_self_waits_fences_that() -> None:
    drive = Driver()
    first, _ = drive.stable("one", "two")
    waiting = drive.join(first, instance="one")
    assert waiting.result is None
    drive.join(instance="one")
    assert waiting.refused is FencedInstance
    assert drive.state() is GroupState.PREPARING


def test_a_static_member_that_comes_back_while_its_old_self_waits_for_its_assignment() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, "two")
    drive.join(leader)
    drive.join(follower, instance="two")
    waiting = drive.sync(follower, instance="two")
    back = drive.join(instance="two")
    assert waiting.refused is FencedInstance
    drive.join(leader)
    assert back.joined.generation == drive.group.generation


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    drive = Driver()
    first, second = drive.stable("one", None)
    drive.join(second, protocols=[("range", b"changed")])
    drive.advance(900)
    # The rebalance is not over before its timeout, because the static member is missing …
    assert drive.state() is GroupState.PREPARING
    drive.advance(100)
    # … but its session, of a second, is over sooner.
    assert [member.id for member in drive.group.members] == [second]
    assert drive.heartbeat(first, instance="one") is UnknownMember


def test_an_absent_static_member_is_assigned_to_when_the_rebalance_times_out() -> None:
    drive = Driver()
    absent = drive.join(instance="one", session_ms=60_000).joined.member_id
    drive.sync(absent, assignments={absent: b"all"}, instance="one")
    newcomer = drive.join()
    drive.advance(3000)
    joined = newcomer.joined
    assert (joined.leader_id, len(joined.members)) == (joined.member_id, 2)
    drive.sync(joined.member_id, assignments={absent: b"its part"})
    # It is not expected to ask for it as long as it is away.
    for _ in range(10):
        drive.advance(500)
        assert drive.heartbeat(joined.member_id) is None
    back = drive.join(instance="one", session_ms=60_000).joined
    assert drive.sync(back.member_id, instance="one").assigned == b"its part"


def test_absent_static_members_alone_keep_the_group_until_their_sessions_end() -> None:
    drive = Driver()
    absent = drive.join(instance="one", session_ms=60_000).joined.member_id
    drive.sync(absent, assignments={}, instance="one")
    newcomer = drive.join()
    drive.leave(next(member.id for member in drive.group.members if member.joining is not None))
    assert newcomer.refused is UnknownMember
    drive.advance(10_000)
    assert (drive.state(), len(drive.group.members)) == (GroupState.PREPARING, 1)
    drive.advance(60_000)
    assert drive.state() is GroupState.EMPTY


def test_a_static_member_leaves_by_its_instance_id() -> None:
    drive = Driver()
    drive.stable("one", "two")
    assert drive.leave("", instance="two") is None
    assert drive.leave("", instance="two") is UnknownMember
    assert len(drive.group.members) == 1


def test_ids_and_instances_of_others() -> None:
    drive = Driver()
    first, second = drive.stable("one", "two")
    assert drive.heartbeat(first, instance="two") is FencedInstance
    assert drive.heartbeat(first, instance="three") is UnknownMember
    assert drive.heartbeat(second) is None
