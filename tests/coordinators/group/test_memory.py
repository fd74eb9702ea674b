"""Groups and memory: what members bring is counted, bounded, given back, and found again after a restart."""

import pytest

from duramen.base.errors import GroupFull, MemberIdRequired
from duramen.coordinators.group.coordinator import CommitMember, LeavingMember
from duramen.coordinators.group.memory import LARGEST_MEMBER_BYTES
from duramen.groups.values import JoinRequest, JoinResult, SyncRequest, SyncResult
from duramen.sim.broker import CallbackResult, ManualBroker

_LIMIT = 128 << 20
_ROOM = _LIMIT // 8
_BIG = LARGEST_MEMBER_BYTES - 2048


@pytest.fixture
def hand() -> ManualBroker:
    """A broker with the least memory there is, and its stream of offsets."""
    hand = ManualBroker({"memory.limit.bytes": _LIMIT})
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    return hand


def join(
    hand: ManualBroker, group: str, size: int, member_id: str = "", *, id_required: bool = False, client: str = "c"
) -> CallbackResult[JoinResult]:
    """Ask to join with so many bytes of metadata."""
    answer: CallbackResult[JoinResult] = CallbackResult()
    name = hand.broker.groups.new_member_id("m")
    request = JoinRequest(
        member_id, None, name, id_required, client, "/h", 10_000, 60_000, "consumer", [("range", bytes(size))]
    )
    hand.broker.groups.join(group, request, answer)
    hand.settle()
    return answer


def sync(hand: ManualBroker, group: str, joined: JoinResult, size: int) -> CallbackResult[SyncResult]:
    """Bring an assignment of so many bytes."""
    answer: CallbackResult[SyncResult] = CallbackResult()
    assignments = [(joined.member_id, bytes(size))]
    hand.broker.groups.sync(
        group, SyncRequest(joined.member_id, None, joined.generation, None, None, assignments), answer
    )
    hand.settle()
    return answer


def test_a_member_that_brings_too_much_is_refused_and_said(hand: ManualBroker) -> None:
    error = join(hand, "g", LARGEST_MEMBER_BYTES).error
    assert isinstance(error, GroupFull)
    assert "group g brings" in str(error)
    assert hand.reports == [str(error)]
    assert isinstance(join(hand, "g", 10, client="c" * LARGEST_MEMBER_BYTES).error, GroupFull)
    assert len(hand.reports) == 1, "once a minute is enough"
    assert join(hand, "g", _BIG).value.generation == 1


def test_an_assignment_that_is_too_large_is_refused(hand: ManualBroker) -> None:
    joined = join(hand, "g", 10).value
    assert isinstance(sync(hand, "g", joined, LARGEST_MEMBER_BYTES + 1).error, GroupFull)
    assert len(sync(hand, "g", joined, LARGEST_MEMBER_BYTES).value.assignment) == LARGEST_MEMBER_BYTES


def test_all_groups_together_have_a_bound_and_give_back_what_they_had(hand: ManualBroker) -> None:
    members = [join(hand, f"g{number}", _BIG).value for number in range(_ROOM // LARGEST_MEMBER_BYTES)]
    assert isinstance(join(hand, "one more", _BIG).error, GroupFull)
    assert isinstance(sync(hand, "g0", members[0], _BIG).error, GroupFull), "assignments are counted with them"
    assert join(hand, "small", 10).value.generation == 1
    # Who is in it already may join again.
    assert join(hand, "g0", _BIG, members[0].member_id).value.member_id == members[0].member_id
    left: CallbackResult[list[object]] = CallbackResult()
    hand.broker.groups.leave("g1", [LeavingMember(members[1].member_id, None)], left)
    hand.settle()
    assert join(hand, "one more", _BIG - 4096).value.generation == 1
    hand.advance(10_000)
    assert [join(hand, f"again{number}", _BIG).value.generation for number in range(15)] == [1] * 15


def test_what_was_stored_counts_after_a_restart_and_is_not_refused(hand: ManualBroker) -> None:
    joined = [join(hand, f"g{number}", _BIG // 2).value for number in range(15)]
    for number, member in enumerate(joined):
        assert sync(hand, f"g{number}", member, _BIG // 2).value
    hand.restart()
    beat: CallbackResult[None] = CallbackResult()
    hand.broker.groups.heartbeat("g3", CommitMember(joined[3].member_id, None, 1), beat)
    assert beat.value is None
    assert join(hand, "last", _BIG).value.generation == 1
    assert isinstance(join(hand, "too many", _BIG).error, GroupFull)


def test_ids_that_nobody_comes_back_with_are_counted_until_they_lapse(hand: ManualBroker) -> None:
    client = "c" * 30_000
    name = "x" * 900_000
    answers: list[BaseException | None] = []
    for _ in range(40):
        answer: CallbackResult[JoinResult] = CallbackResult()
        request = JoinRequest("", None, name, True, client, "/h", 10_000, 60_000, "consumer", [("range", b"")])
        hand.broker.groups.join(f"g{len(answers)}", request, answer)
        answers.append(answer.error)
    assert [type(error) for error in answers] == [MemberIdRequired] * 18 + [GroupFull] * 22
    hand.advance(10_000)
    assert isinstance(join(hand, "g", 10, id_required=True).error, MemberIdRequired)
