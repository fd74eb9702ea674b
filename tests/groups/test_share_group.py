"""Members of a share group: epochs, assignments and who is given up."""

from uuid import UUID

import pytest

from duramen.base.errors import FencedMemberEpoch, GroupFull, UnknownMember
from duramen.groups.share_group import ShareGroup, ShareGroupState, ShareHeartbeat, ShareHeartbeatResult

TOPICS = {"a": (UUID(int=1), 2), "b": (UUID(int=2), 1)}
BOTH = frozenset({(UUID(int=1), 0), (UUID(int=1), 1)})


class Drive:
    """A group with a clock of its own."""

    def __init__(self, max_size: int = 10) -> None:
        self.group = ShareGroup("g")
        self.topics = dict(TOPICS)
        self.now_ms = 0
        self.max_size = max_size

    def beat(self, member: str, epoch: int, *topics: str, rack: str | None = None) -> ShareHeartbeatResult:
        heartbeat = ShareHeartbeat(member, epoch, rack, topics or None, "client", "/host")
        return self.group.heartbeat(
            heartbeat, self.topics.get, self.now_ms, session_ms=100, max_size=self.max_size
        )  # fmt: skip


def test_a_member_learns_its_assignment_once() -> None:
    drive = Drive()
    assert drive.beat("m", 0, "a") == ShareHeartbeatResult("m", 1, BOTH)
    assert drive.beat("m", 1) == ShareHeartbeatResult("m", 1, None)
    assert drive.beat("m", 1, "a") == ShareHeartbeatResult("m", 1, None)
    assert drive.beat("m", 1, "b").assignment == frozenset({(UUID(int=2), 0)})
    assert drive.group.state is ShareGroupState.STABLE


def test_a_member_whose_answer_was_lost_comes_again_in_its_epoch_before() -> None:
    drive = Drive()
    drive.beat("m", 0, "a")
    changed = drive.beat("m", 1, "a", "b")
    assert changed.epoch == 2
    assert drive.beat("m", 1) == changed
    with pytest.raises(FencedMemberEpoch):
        drive.beat("m", 3)
    drive.beat("m", 2, "b")
    with pytest.raises(FencedMemberEpoch):
        drive.beat("m", 1)


def test_others_make_a_new_epoch_in_which_each_is_with_its_next_heartbeat() -> None:
    drive = Drive()
    drive.beat("m", 0, "a")
    assert drive.beat("n", 0, "a").epoch == 2
    halved = drive.beat("m", 1)
    assert halved.epoch == 2
    assert halved.assignment is not None
    assert len(halved.assignment) == 1
    drive.group.leave("n", drive.topics.get)
    assert drive.beat("m", 2) == ShareHeartbeatResult("m", 3, BOTH)


def test_a_member_that_joins_again_keeps_its_place() -> None:
    drive = Drive()
    drive.beat("m", 0, "a", rack="r")
    assert drive.beat("m", 0, "a") == ShareHeartbeatResult("m", 1, BOTH)
    assert [member.rack_id for member in drive.group] == ["r"]


def test_who_is_silent_is_given_up() -> None:
    drive = Drive()
    drive.beat("m", 0, "a")
    drive.now_ms = 60
    drive.beat("n", 0, "a")
    assert drive.group.next_deadline_ms() == 100
    assert drive.group.expire(drive.topics.get, 100) == ["m"]
    assert drive.beat("n", 2) == ShareHeartbeatResult("n", 3, BOTH)
    with pytest.raises(UnknownMember):
        drive.beat("m", 1)
    with pytest.raises(UnknownMember):
        drive.group.leave("m", drive.topics.get)
    assert drive.group.expire(drive.topics.get, 1000) == ["n"]
    assert drive.group.state is ShareGroupState.EMPTY
    assert drive.group.next_deadline_ms() is None


def test_topics_that_come_and_grow_and_go() -> None:
    drive = Drive()
    assert drive.beat("m", 0, "c").assignment == frozenset()
    assert not drive.group.topics_changed(drive.topics.get)
    drive.topics["c"] = (UUID(int=3), 1)
    assert drive.group.topics_changed(drive.topics.get)
    assert drive.beat("m", 1).assignment == frozenset({(UUID(int=3), 0)})
    drive.topics["c"] = (UUID(int=4), 2)
    assert drive.group.topics_changed(drive.topics.get)
    assert drive.beat("m", 2).assignment == frozenset({(UUID(int=4), 0), (UUID(int=4), 1)})
    del drive.topics["c"]
    assert drive.group.topics_changed(drive.topics.get)
    assert drive.beat("m", 3).assignment == frozenset()
    assert drive.group.subscribes("c")


def test_a_group_is_full() -> None:
    drive = Drive(max_size=1)
    drive.beat("m", 0, "a")
    with pytest.raises(GroupFull):
        drive.beat("n", 0, "a")
    drive.beat("m", 0, "a")
    assert len(drive.group) == 1
    assert drive.group.held_bytes >= drive.group.held_for("m") > 0
