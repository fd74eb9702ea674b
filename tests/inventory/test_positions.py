"""Positions and `follow` of the inventory as text: what is accepted fits into the numbers of the log and of rows."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.inventory.feed import FeedScope, follow_token, read_follow_token
from duramen.inventory.ids import LARGEST_SEQUENCE, MOST_SHARDS, TopicKey
from duramen.inventory.positions import split_position

EPOCHS = st.integers(-(1 << 31), (1 << 31) - 1)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(EPOCHS, OFFSETS)))
def test_a_text_gives_back_its_numbers(positions: list[tuple[int, int]]) -> None:
    assert split_position(",".join(f"{epoch}.{offset}" for epoch, offset in positions)) == positions
    assert split_position(",".join(f"{offset}" for _, offset in positions)) == [(0, offset) for _, offset in positions]


@given(st.text("0123456789.,-\u0661 ", max_size=60) | st.text(max_size=20))
def test_what_is_accepted_fits(text: str) -> None:
    with suppress(RequestInvalid):
        for epoch, offset in split_position(text):
            assert -(1 << 31) <= epoch < 1 << 31
            assert -(1 << 63) <= offset < 1 << 63


@pytest.mark.parametrize("text", [",", "1,", ".1", "1.", "--1", "1.1.1", "\u0661", f"{1 << 63}", f"{1 << 31}.1", "x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        split_position(text)


IDS = st.integers(1, 9_999_999_999)


@given(IDS, IDS, st.integers(0, MOST_SHARDS - 1), st.integers(0, LARGEST_SEQUENCE))
def test_a_follow_token_gives_back_its_scope(tenant: int, namespace: int, shard: int, sequence: int) -> None:
    for scope in (
        FeedScope("a", tenant, 0, b""), FeedScope("a", tenant, namespace, b"p"),
        FeedScope("a", tenant, namespace, b"", TopicKey(shard, sequence)),
    ):  # fmt: skip
        assert read_follow_token("a", follow_token(scope), scope.prefix) == scope


@given(st.text("0123456789.", max_size=40) | st.from_regex(r"[0-9]{1,12}(\.[0-9]{1,15}){0,4}", fullmatch=True))
def test_a_follow_token_names_a_topic_that_rows_can_have(token: str) -> None:
    with suppress(RequestInvalid):
        topic = read_follow_token("a", token, b"").topic
        assert topic is None or (topic.shard < MOST_SHARDS and topic.sequence <= LARGEST_SEQUENCE)


@pytest.mark.parametrize("token", [f"1.1.0.{LARGEST_SEQUENCE + 1}", f"1.1.{MOST_SHARDS}.1", "1.1.1", "1.1.1.1.1", "-1"])
def test_other_follow_tokens_are_refused(token: str) -> None:
    with pytest.raises(RequestInvalid, match="follow"):
        read_follow_token("a", token, b"")
