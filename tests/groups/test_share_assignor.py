"""The assignor of share groups: nobody without work, no partition without anybody, evenly, and little moves."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from duramen.groups.share_assignor import Place, assign

A, B = UUID(int=1), UUID(int=2)
TOPICS = [A, B, UUID(int=3)]
MEMBERS = st.dictionaries(
    st.sampled_from([f"m{index}" for index in range(9)]), st.sets(st.sampled_from(TOPICS), min_size=1), max_size=9
)
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
PLACES = st.builds(lambda topic, index: (topic, index), st.sampled_from(TOPICS), st.integers(0, 8))
CURRENT = st.dictionaries(st.sampled_from([f"m{index}" for index in range(9)]), st.frozensets(PLACES, max_size=9))


@given(MEMBERS, PARTITIONS, CURRENT)
def test_every_partition_has_a_member_that_wants_it_and_every_member_has_work(
    members: dict[str, set[UUID]], partitions: dict[UUID, int], current: dict[str, frozenset[Place]]
) -> None:
    assigned = assign(members, partitions, current)
    assert set(assigned) == set(members)
    for member, places in assigned.items():
        assert all(topic in members[member] and index < partitions[topic] for topic, index in places)
        has_work = any(partitions.get(topic) for topic in members[member])
        assert bool(places) == has_work
    for topic, count in partitions.items():
        if any(topic in wanted for wanted in members.values()):
            assert all(any((topic, index) in places for places in assigned.values()) for index in range(count))


@given(st.integers(1, 12), st.integers(1, 12), CURRENT)
def test_members_who_want_the_same_share_evenly(
    members: int, partitions: int, current: dict[str, frozenset[Place]]
) -> None:
    assigned = assign({f"m{index}": {A} for index in range(members)}, {A: partitions}, current)
    sizes = [len(places) for places in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    sharers = [sum((A, index) in places for places in assigned.values()) for index in range(partitions)]
    if members <= partitions:
        assert set(sharers) == {1}


@given(st.integers(1, 8), st.integers(1, 12))
def test_what_is_even_stays(members: int, partitions: int) -> None:
    wanting = {f"m{index}": {A, B} for index in range(members)}
    first = assign(wanting, {A: partitions, B: 2}, {})
    assert assign(wanting, {A: partitions, B: 2}, first) == first


def test_a_newcomer_takes_from_who_has_most() -> None:
    before = assign({"a": {A}}, {A: 4}, {})
    after = assign({"a": {A}, "b": {A}}, {A: 4}, before)
    assert {member: len(places) for member, places in after.items()} == {"a": 2, "b": 2}
    assert after["a"] < before["a"]
