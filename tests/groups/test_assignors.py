"""Server-side assignors: what they promise, for whatever members, subscriptions and partitions there are."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from duramen.groups.topics import TopicPartition

TOPICS = [UUID(int=number) for number in range(1, 6)]
Assigned = dict[str, frozenset[TopicPartition]]

partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))
subscriptions = st.frozensets(st.sampled_from(TOPICS))
places = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 13)), max_size=20)
instances = st.none() | st.uuids().map(str)
subscribers = st.builds(Subscriber, instances, subscriptions, places)
members = st.dictionaries(st.integers(0, 40).map(lambda number: f"m{number:02}"), subscribers, max_size=8)
EVERY = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)


def alike(count: int, topics: frozenset[UUID] = frozenset(TOPICS)) -> dict[str, Subscriber]:
    """Members that subscribe to the same and have nothing."""
    return {f"m{number:02}": Subscriber(None, topics, frozenset()) for number in range(count)}


def owning(members: dict[str, Subscriber], assigned: Assigned) -> dict[str, Subscriber]:
    """The members, with what they were assigned."""
    return {name: one._replace(owned=assigned.get(name, frozenset())) for name, one in members.items()}


@EVERY
@given(members=members, partitions=partitions)
def test_every_partition_that_somebody_wants_goes_to_one_who_wants_it(
    assign: object, members: dict[str, Subscriber], partitions: dict[UUID, int]
) -> None:
    assert callable(assign)
    assigned = assign(members, partitions)
    assert assigned.keys() == members.keys()
    given_out = Counter(place for held in assigned.values() for place in held)
    wanted = {topic for one in members.values() for topic in one.topics}
    assert given_out == Counter(
        (topic, index) for topic, count in partitions.items() if topic in wanted for index in range(count)
    )
    assert all(topic in members[name].topics for name, held in assigned.items() for topic, _ in held)


@given(members, partitions)
def test_uniform_is_balanced(members: dict[str, Subscriber], partitions: dict[UUID, int]) -> None:
    assigned = assign_uniform(members, partitions)
    for giver, held in assigned.items():
        for topic in {topic for topic, _ in held}:
            loads = [len(assigned[name]) for name, one in members.items() if topic in one.topics and name != giver]
            assert len(held) - min(loads, default=len(held)) < 2


@given(members, partitions)
def test_uniform_leaves_what_is_balanced_as_it_is(members: dict[str, Subscriber], partitions: dict[UUID, int]) -> None:
    once = assign_uniform(members, partitions)
    assert assign_uniform(owning(members, once), partitions) == once


@given(st.integers(1, 12), partitions)
def test_uniform_moves_no_more_than_a_newcomer_gets(count: int, partitions: dict[UUID, int]) -> None:
    before = assign_uniform(alike(count), partitions)
    members = {**owning(alike(count), before), "new": Subscriber(None, frozenset(TOPICS), frozenset())}
    after = assign_uniform(members, partitions)
    assert len(after["new"]) == sum(partitions.values()) // (count + 1)
    assert sum(len(before[name] - after[name]) for name in before) == len(after["new"])
    assert all(after[name] <= before[name] for name in before)


@given(st.integers(2, 12), partitions)
def test_uniform_leaves_the_others_what_they_have_when_one_goes(count: int, partitions: dict[UUID, int]) -> None:
    before = assign_uniform(alike(count), partitions)
    left = owning(alike(count), before)
    del left["m00"]
    after = assign_uniform(left, partitions)
    assert all(before[name] <= after[name] for name in left)


@given(members, partitions)
def test_range_gives_runs_whose_lengths_differ_by_one(
    members: dict[str, Subscriber], partitions: dict[UUID, int]
) -> None:
    assigned = assign_range(members, partitions)
    for topic in partitions:
        runs = {
            name: sorted(index for owned, index in assigned[name] if owned == topic)
            for name, one in members.items()
            if topic in one.topics
        }
        for run in runs.values():
            assert run == list(range(run[0], run[0] + len(run))) if run else True
        lengths = [len(run) for run in runs.values()]
        assert max(lengths, default=0) - min(lengths, default=0) <= 1


@given(members, partitions)
def test_range_puts_equal_topics_together(members: dict[str, Subscriber], partitions: dict[UUID, int]) -> None:
    """Topics with as many partitions and the same subscribers: who has a partition of one has that of the other."""
    assigned = assign_range(members, partitions)
    for one, count in partitions.items():
        for other, as_many in partitions.items():
            alike = all((one in member.topics) == (other in member.topics) for member in members.values())
            if alike and count == as_many:
                for held in assigned.values():
                    assert {index for topic, index in held if topic == one} == {
                        index for topic, index in held if topic == other
                    }


@given(st.lists(st.uuids().map(str), min_size=1, max_size=8, unique=True), partitions)
def test_range_gives_a_static_member_the_same_under_another_id(
    instances: list[str], partitions: dict[UUID, int]
) -> None:
    def assign(prefix: str) -> dict[str, frozenset[TopicPartition]]:
        names = {instance: f"{prefix}{hash((prefix, instance))}" for instance in instances}
        members = {names[one]: Subscriber(one, frozenset(TOPICS), frozenset()) for one in instances}
        assigned = assign_range(members, partitions)
        return {instance: assigned[name] for instance, name in names.items()}

    assert assign("a") == assign("b")


def test_many_members_and_partitions_take_no_time() -> None:
    """10,000 partitions and 100 members, and then one more: no step looks at every pair of them."""
    many = {TOPICS[0]: 6000, TOPICS[1]: 4000}
    before = assign_uniform(alike(100), many)
    assert {len(held) for held in before.values()} == {100}
    after = assign_uniform(owning(alike(101), before), many)
    assert len(after["m100"]) == 99
