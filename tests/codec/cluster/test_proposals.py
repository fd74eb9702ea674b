"""Proposals on their way to the leader, and where nodes are: what is sent is received, what is damaged is refused."""

from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.codec.cluster import nodes, proposals
from duramen.codec.cluster.proposals import Committed, Proposal, Refused

whole = st.integers(0, (1 << 63) - 1)
addresses = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5).map(tuple))
def test_a_proposal_arrives(events: tuple[bytes, ...]) -> None:
    sent = Proposal(events)
    assert proposals.decode_proposal(bytearray(proposals.encode(sent))) == sent


@given(st.builds(Committed, whole, whole) | st.builds(Refused, st.text(max_size=20), st.text(max_size=20)))
def test_an_answer_arrives(sent: proposals.Answer) -> None:
    assert proposals.decode_answer(proposals.encode(sent)) == sent


@given(st.lists(st.tuples(st.integers(0, (1 << 31) - 1), addresses), max_size=5).map(tuple))
def test_where_nodes_are_arrives(sent: tuple[tuple[int, str], ...]) -> None:
    assert nodes.decode(nodes.encode(sent)) == sent


@pytest.mark.parametrize("decode", [proposals.decode_proposal, proposals.decode_answer, nodes.decode])
@given(st.binary(max_size=100))
def test_any_bytes_are_refused_or_read(decode: Callable[[bytes], object], body: bytes) -> None:
    with suppress(RequestInvalid):
        decode(body)


@pytest.mark.parametrize(
    ("decode", "value"),
    [
        (proposals.decode_proposal, [1, []]),
        (proposals.decode_answer, [2, -1, 0]),
        (proposals.decode_answer, [3, "x" * 5000, ""]),
        (nodes.decode, [[1, "two\nlines"]]),
        (nodes.decode, [[-1, "h:1"]]),
        (nodes.decode, [[1, "h:1"]] * 65),
    ],
)
def test_values_that_cannot_be(decode: Callable[[bytes], object], value: object) -> None:
    with pytest.raises(RequestInvalid):
        decode(msgspec.msgpack.encode(value))
