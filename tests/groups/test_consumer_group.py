"""A group of the consumer protocol, step by step: epochs, assignments, revoking before assigning, who is fenced."""

import pytest
from tests.groups.consumers import CONFIG, Driver, Someone

from duramen.base.errors import (
    DuramenError,
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    PatternInvalid,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    VersionTooOld,
)
from duramen.groups.consumer_values import ConsumerState, HeartbeatRequest, MemberState


def both(driver: Driver) -> tuple[Someone, Someone]:
    """Two members that share four partitions, two each."""
    one, two = Someone(driver, "one", "a"), Someone(driver, "two", "a")
    one.join()
    two.join()
    driver.settle(one, two)
    return one, two


def test_the_first_member_has_everything_at_once() -> None:
    driver = Driver(a=4)
    one = Someone(driver, "one", "a")
    result = one.join()
    assert result.assigned == frozenset(driver.place("a", index) for index in range(4))
    assert (result.member_id, result.epoch) == ("one", 2)
    assert driver.state() is ConsumerState.STABLE
    assert driver.heartbeat(HeartbeatRequest("one", 2)).assigned is None, "it was told before"


def test_a_partition_is_given_up_before_another_gets_it() -> None:
    driver = Driver(a=4)
    one, two = Someone(driver, "one", "a"), Someone(driver, "two", "a")
    one.join()
    joined = two.join()
    assert joined.assigned == frozenset(), "all of it is the other's still"
    assert driver.state() is ConsumerState.RECONCILING
    told = driver.heartbeat(HeartbeatRequest("one", 2))
    assert told.epoch == 2, "it stays in its epoch until it has given up what it must"
    assert told.assigned is not None
    assert len(told.assigned) == 2
    assert driver.heartbeat(HeartbeatRequest("two", joined.epoch)).assigned is None
    # It says what it has, with what it must give up in it still: nothing changes.
    everything = frozenset(driver.place("a", index) for index in range(4))
    assert driver.heartbeat(HeartbeatRequest("one", 2, owned=everything)).epoch == 2
    assert driver.heartbeat(HeartbeatRequest("two", joined.epoch)).assigned is None
    assert driver.heartbeat(HeartbeatRequest("one", 2, owned=told.assigned)).epoch == 3
    got = driver.heartbeat(HeartbeatRequest("two", joined.epoch))
    assert got.assigned == everything - told.assigned
    assert driver.state() is ConsumerState.STABLE


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    driver = Driver(a=4)
    one, two = Someone(driver, "one", "a"), Someone(driver, "two", "a")
    one.join()
    two.join()
    assert driver.heartbeat(HeartbeatRequest("one", 2)).assigned is not None
    for _ in range(6):
        driver.advance(99)
        if "one" in driver.group.table.members:
            driver.heartbeat(HeartbeatRequest("one", 2))
        two.beat()
    assert "one" not in driver.group.table.members
    assert len(two.owned) == 4
    with pytest.raises(UnknownMember):
        driver.heartbeat(HeartbeatRequest("one", 2))


def test_a_silent_member_is_fenced_when_its_session_ends() -> None:
    driver = Driver(a=4)
    one, two = both(driver)
    driver.advance(999)
    two.beat()
    driver.advance(1)
    assert list(driver.group.table.members) == ["two"]
    driver.settle(two)
    assert len(two.owned) == 4
    one.join()
    driver.settle(one, two)
    assert len(one.owned) == len(two.owned) == 2


def test_a_member_that_leaves_frees_what_it_had() -> None:
    driver = Driver(a=4)
    one, two = both(driver)
    assert one.leave().epoch == -1
    driver.settle(two)
    assert len(two.owned) == 4
    assert two.leave().epoch == -1
    assert driver.state() is ConsumerState.EMPTY
    with pytest.raises(UnknownMember):
        two.leave()


@pytest.mark.parametrize(("epoch", "owned"), [(4, None), (9, None), (2, None), (2, frozenset({0, 1, 2, 3}))])
def test_another_epoch_than_the_last_is_fenced(epoch: int, owned: frozenset[int] | None) -> None:
    driver = Driver(a=4)
    both(driver)
    places = None if owned is None else frozenset(driver.place("a", index) for index in owned)
    with pytest.raises(FencedMemberEpoch):
        driver.heartbeat(HeartbeatRequest("one", epoch, owned=places))


def test_an_answer_with_a_new_epoch_may_be_lost() -> None:
    driver = Driver(a=4)
    one, _ = both(driver)
    assert one.epoch == 3
    assert driver.heartbeat(HeartbeatRequest("one", 2, owned=one.owned)).epoch == 3


def test_a_fenced_member_joins_again_under_its_id() -> None:
    driver = Driver(a=4)
    one, two = both(driver)
    one.join()
    driver.settle(one, two)
    assert len(one.owned) == len(two.owned) == 2


def test_a_full_heartbeat_is_told_everything() -> None:
    driver = Driver(a=4)
    one, _ = both(driver)
    request = HeartbeatRequest("one", one.epoch, rebalance_timeout_ms=500, topics=frozenset({"a"}), owned=one.owned)
    assert driver.heartbeat(request).assigned == one.owned


def test_a_group_has_a_largest_size() -> None:
    driver = Driver(CONFIG._replace(max_size=2), a=4)
    both(driver)
    with pytest.raises(GroupFull):
        Someone(driver, "three", "a").join()
    Someone(driver, "one", "a").join()


def test_members_that_want_something_else_get_it() -> None:
    driver = Driver(a=2, b=3)
    one = Someone(driver, "one", "a")
    one.join()
    one.beat(topics=frozenset({"b", "nothing"}))
    driver.settle(one)
    assert one.owned == {driver.place("b", index) for index in range(3)}
    one.beat(topics=frozenset())
    driver.settle(one)
    assert one.owned == frozenset()


# -- static members ---------------------------------------------------------------------------------------


def test_a_static_member_comes_back_without_an_epoch() -> None:
    driver = Driver(a=4)
    one = Someone(driver, "one", "a", instance="i")
    two = Someone(driver, "two", "a")
    one.join()
    two.join()
    driver.settle(one, two)
    before, epoch = one.owned, driver.group.table.epoch
    with pytest.raises(UnreleasedInstance):
        Someone(driver, "again", "a", instance="i").join()
    assert one.leave(-2).epoch == -2
    back = Someone(driver, "again", "a", instance="i")
    assert back.join().assigned == before
    assert driver.group.table.epoch == epoch, "nobody else hears of it"
    assert sorted(driver.group.table.members) == ["again", "two"]
    with pytest.raises(FencedInstance):
        one.beat()
    with pytest.raises(UnknownMember):
        driver.heartbeat(HeartbeatRequest("two", two.epoch, "nobody"))


def test_a_static_member_that_stays_away_is_removed() -> None:
    driver = Driver(a=4)
    one = Someone(driver, "one", "a", instance="i")
    one.join()
    one.leave(-2)
    driver.advance(1000)
    assert driver.state() is ConsumerState.EMPTY
    assert Someone(driver, "new", "a", instance="i").join().epoch > 1


# -- topics, assignors, patterns --------------------------------------------------------------------------


def test_topics_that_come_grow_and_go() -> None:
    driver = Driver(a=1)
    one = Someone(driver, "one", "a", "b")
    one.join()
    driver.change("b", 2)
    driver.settle(one)
    assert len(one.owned) == 3
    driver.change("a", 3)
    driver.settle(one)
    assert len(one.owned) == 5
    driver.change("a", None)
    driver.settle(one)
    assert one.owned == {driver.place("b", 0), driver.place("b", 1)}
    driver.change("a", 1)
    driver.settle(one)
    assert driver.place("a", 0) in one.owned, "a topic made anew is another one"
    assert len(one.owned) == 3


def test_topics_of_others_change_nothing() -> None:
    driver = Driver(a=1)
    one = Someone(driver, "one", "a")
    one.join()
    driver.change("b", 2)
    assert not one.beat()
    assert driver.group.table.epoch == 2


def test_most_members_choose_the_assignor() -> None:
    driver = Driver(a=4)
    assert driver.group.assignor == "uniform"
    for number in range(3):
        Someone(driver, f"m{number}", "a", assignor=["range", "uniform", "range"][number]).join()
    assert driver.group.assignor == "range"


def test_a_pattern_finds_topics_as_they_come_and_go() -> None:
    driver = Driver(other=1)
    driver.topics.put("topic-1", 1)
    one = Someone(driver, "one", "other", pattern="topic-.*")
    one.join()
    assert len(one.owned) == 2
    driver.change("topic-2", 2)
    driver.settle(one)
    assert len(one.owned) == 4
    driver.change("topic-1", None)
    driver.settle(one)
    assert len(one.owned) == 3
    driver.restart()
    assert driver.group.subscribes("topic-2")
    one.beat(pattern="")
    driver.settle(one)
    assert one.owned == {driver.place("other", 0)}
    assert driver.group.table.patterns == {}


def test_a_bad_pattern_changes_nothing() -> None:
    driver = Driver(a=1)
    with pytest.raises(PatternInvalid):
        Someone(driver, "one", pattern="a(").join()
    assert driver.group.table.members == {}
    assert driver.stored == {}


# -- offsets --------------------------------------------------------------------------------------------


def test_offsets_are_committed_in_the_member_s_epoch() -> None:
    driver = Driver(a=4)
    check = driver.group.check_commit
    check("", -1, knows_epochs=True)
    one, _ = both(driver)
    check("one", one.epoch, knows_epochs=True)
    driver.group.check_fetch("one", one.epoch)
    driver.group.check_fetch(None, -1)
    refused: list[tuple[type[DuramenError], str, int, bool]] = [
        (UnknownMember, "", -1, True),
        (UnknownMember, "nobody", 1, True),
        (StaleMemberEpoch, "one", one.epoch - 1, True),
        (StaleMemberEpoch, "one", one.epoch + 1, True),
        (VersionTooOld, "one", one.epoch, False),
    ]
    for error, member_id, epoch, knows_epochs in refused:
        with pytest.raises(error):
            check(member_id, epoch, knows_epochs=knows_epochs)
    with pytest.raises(StaleMemberEpoch):
        driver.group.check_fetch("one", one.epoch - 1)
    with pytest.raises(UnknownMember):
        driver.group.check_fetch("nobody", 1)


def test_an_older_epoch_will_do_for_what_a_member_has_kept() -> None:
    """A commit that is under way while the member is led into the next epoch is not lost."""
    driver = Driver(a=4)
    one, two = both(driver)
    first, second = one.epoch - 1, one.epoch
    kept = [("a", index) for _, index in one.owned]
    got = [("a", index) for _, index in two.owned]
    check = driver.group.check_commit
    check("one", first, knows_epochs=True, partitions=kept)
    check("two", second, knows_epochs=True, partitions=got)
    refused = [
        ("two", first, got),
        ("one", first, got),
        ("one", first, []),
        ("one", second + 1, kept),
        ("one", 1, kept),
    ]
    for name, epoch, partitions in refused:
        with pytest.raises(StaleMemberEpoch):
            check(name, epoch, knows_epochs=True, partitions=partitions)
    driver.restart()
    driver.group.check_commit("one", first, knows_epochs=True, partitions=kept)
    with pytest.raises(StaleMemberEpoch):
        driver.group.check_commit("two", first, knows_epochs=True, partitions=got)


# -- restarts ---------------------------------------------------------------------------------------------


def test_members_go_on_after_a_restart() -> None:
    driver = Driver(a=4)
    one, two = both(driver)
    before = driver.group.table
    driver.restart()
    assert driver.group.table.members == before.members
    assert driver.group.table.target == before.target
    assert not one.beat()
    assert not two.beat()
    assert driver.state() is ConsumerState.STABLE
    driver.advance(1000)
    assert driver.state() is ConsumerState.EMPTY


def test_a_member_that_was_to_give_up_has_its_time_again_after_a_restart() -> None:
    driver = Driver(a=4)
    one, two = Someone(driver, "one", "a"), Someone(driver, "two", "a")
    one.join()
    two.join()
    one.beat()
    assert driver.group.table.members["one"].state is MemberState.UNREVOKED
    driver.restart()
    driver.advance(499)
    assert "one" in driver.group.table.members
    driver.advance(1)
    assert "one" not in driver.group.table.members


def test_a_topic_that_grew_while_the_node_was_down() -> None:
    driver = Driver(a=1)
    one = Someone(driver, "one", "a")
    one.join()
    driver.topics.put("a", 3)
    driver.restart()
    driver.settle(one)
    assert len(one.owned) == 3
