"""Sharing partitions out: everything once, evenly, and as other clients do it."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.client import TopicPartition
from duramen.client.assignors import ASSIGNORS

TOPICS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 7), max_size=4)
MEMBERS = st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m10"]), st.sets(st.sampled_from("abcde")), min_size=1)


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(wanted=MEMBERS, counts=TOPICS)
def test_everything_wanted_is_given_once(name: str, wanted: Mapping[str, set[str]], counts: Mapping[str, int]) -> None:
    given_out = ASSIGNORS[name](wanted, counts)
    assert set(given_out) == set(wanted)
    assert all(at.topic in wanted[member] for member, ats in given_out.items() for at in ats)
    all_topics = set[str]().union(*wanted.values())
    assert sorted(at for ats in given_out.values() for at in ats) == [
        TopicPartition(topic, index)
        for topic, count in sorted(counts.items())
        if topic in all_topics
        for index in range(count)
    ]


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(members=st.integers(1, 5), counts=TOPICS)
def test_shares_are_even(name: str, members: int, counts: Mapping[str, int]) -> None:
    wanted = {f"m{number}": set(counts) for number in range(members)}
    given_out = ASSIGNORS[name](wanted, counts)
    for topic in counts:
        shares = [sum(at.topic == topic for at in ats) for ats in given_out.values()]
        assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_shares_are_those_of_other_clients(name: str) -> None:
    wanted = {"m2": {"a", "b"}, "m1": {"a"}, "m3": {"b", "c"}}
    counts = {"a": 3, "b": 4, "c": 2}
    expected: dict[str, dict[str, list[tuple[str, int]]]] = {
        "range": {
            "m1": [("a", 0), ("a", 1)],
            "m2": [("a", 2), ("b", 0), ("b", 1)],
            "m3": [("b", 2), ("b", 3), ("c", 0), ("c", 1)],
        },
        "roundrobin": {
            "m1": [("a", 0), ("a", 2)],
            "m2": [("a", 1), ("b", 0), ("b", 2)],
            "m3": [("b", 1), ("b", 3), ("c", 0), ("c", 1)],
        },
    }
    found: dict[str, Any] = {member: list(map(tuple, ats)) for member, ats in ASSIGNORS[name](wanted, counts).items()}
    assert found == expected[name]
