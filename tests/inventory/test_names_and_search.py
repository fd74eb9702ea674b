"""Names, ids and searches of the inventory, beside what Python's own says."""

import re
from fnmatch import fnmatchcase
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import InventoryNameInvalid, PatternInvalid, RequestInvalid, TopicNotFound
from duramen.inventory.ids import LARGEST_SEQUENCE, TopicKey, topic_id, topic_key
from duramen.inventory.names import (
    LONGEST_PART,
    LONGEST_TOPIC_BYTES,
    by_shard,
    check_namespace_name,
    check_tenant_name,
    check_topic_name,
    shard_of,
    sorted_names,
)
from duramen.inventory.packing import pack_names, unpack_names
from duramen.inventory.search import TopicQuery, check_query, prefix_end

INVENTORY = UUID(int=7)


def test_names_fit_into_those_of_kafka() -> None:
    assert LONGEST_PART + 1 + LONGEST_PART + 1 + LONGEST_TOPIC_BYTES == 249
    assert check_tenant_name("a" * 63) == check_namespace_name("a" * 63)
    for wrong in ("", "a.b", "a/b", "ä", "a" * 64, "__a", "a\n"):
        with pytest.raises(InventoryNameInvalid):
            check_tenant_name(wrong)
        with pytest.raises(InventoryNameInvalid):
            check_namespace_name(wrong)
    assert check_topic_name("ü/…") == "ü/…".encode()
    for wrong in ("", "a\x00", "a\n", "a" * 122, "ü" * 61, "\ud800"):
        with pytest.raises(InventoryNameInvalid):
            check_topic_name(wrong)


@given(st.lists(st.text(max_size=130) | st.sampled_from(["a", "b", "a" * 121, "a" * 122])))
def test_many_names_are_checked_as_one_is(names: list[str]) -> None:
    good, bad = sorted_names(names)
    expected = set()
    for name in names:
        try:
            expected.add(check_topic_name(name))
        except InventoryNameInvalid:
            assert name in [problem.name for problem in bad]
    assert good == sorted(expected)
    shards = by_shard(3, good, 4)
    assert sorted(name for shard in shards for name in shard) == good
    assert all(shard_of(3, name, 4) == shard for shard, some in enumerate(shards) for name in some)
    assert not good or unpack_names(pack_names(good)) == good


@given(st.integers(0, 1023), st.integers(0, LARGEST_SEQUENCE))
def test_an_id_leads_to_its_topic_in_its_inventory_alone(shard: int, sequence: int) -> None:
    key = TopicKey(shard, sequence)
    lasting_id = topic_id(INVENTORY, key)
    assert topic_key(INVENTORY, lasting_id, 1024) == key
    for inventory, shards in ((UUID(int=8), 1024), (INVENTORY, shard)):
        with pytest.raises(TopicNotFound):
            topic_key(inventory, lasting_id, shards)


def within(query: TopicQuery, name: str) -> bool:
    first, end = query.bounds()
    return first <= name.encode() and (end is None or name.encode() < end)


@given(st.text("ab*?[]!-.\\", max_size=6), st.text("ab.-]\\[", max_size=6))
def test_a_glob_matches_what_it_does_in_a_shell(glob: str, name: str) -> None:
    query = TopicQuery(glob=glob)
    try:
        matches = query.matcher()
    except PatternInvalid:
        return  # ranges that are none
    found = matches is None or matches(name)
    assert found == (fnmatchcase(name, glob) if glob else True)
    assert not found or within(query, name)


@given(
    st.from_regex(r"[ab]{0,3}(\.|\?|\*|\+|\[ab\]|\(ab?\)|a\{0,2\}|\|)?[ab]{0,2}", fullmatch=True),
    st.text("ab", max_size=6),
)
def test_what_a_pattern_finds_lies_within_its_bounds(pattern: str, name: str) -> None:
    query = TopicQuery(pattern=pattern)
    try:
        matches = query.matcher()
    except PatternInvalid:
        return
    assert matches is None or not matches(name) or within(query, name)


@pytest.mark.parametrize(
    ("query", "bounds"),
    [
        (TopicQuery(glob="ab*"), (b"ab", b"ac")),
        (TopicQuery(pattern=r"a\.b-.*"), (b"a.b-", b"a.b-\xf4\xbf\xbf\xc0\x00")),
        (TopicQuery(pattern="device-[0-4]x"), (b"device-0x", b"device-4x\x00")),
        (TopicQuery(pattern="ab|ac"), (b"ab", b"ac\x00")),
        (TopicQuery(prefix="abc", glob="a*", pattern=".*"), (b"abc", b"abd")),
    ],
)  # fmt: skip
def test_a_search_reads_the_narrowest_range(query: TopicQuery, bounds: tuple[bytes, bytes]) -> None:
    assert query.bounds() == bounds


@pytest.mark.parametrize("glob", ["[", "a[b", "[]", "*[!", "[b-a]"])
def test_a_glob_that_cannot_be_is_named(glob: str) -> None:
    with pytest.raises(PatternInvalid, match=re.escape(repr(glob))):
        check_query(TopicQuery(glob=glob))


@given(st.binary(max_size=3), st.binary(max_size=4))
def test_the_end_of_a_prefix_is_behind_all_that_begin_so(prefix: bytes, name: bytes) -> None:
    end = prefix_end(prefix)
    assert name.startswith(prefix) == (prefix <= name and (end is None or name < end))


def test_a_query_is_bounded() -> None:
    with pytest.raises(RequestInvalid):
        check_query(TopicQuery(prefix="x" * 1001))
    with pytest.raises(PatternInvalid):
        check_query(TopicQuery(pattern="("))
