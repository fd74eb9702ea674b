"""What nodes say to each other about share groups: round trips, and bytes that are none of it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DuramenError, NotCoordinator, OutcomeUnknown, RequestInvalid
from duramen.broker.groups.listing import is_about_groups
from duramen.broker.refusals import Refused
from duramen.broker.sharing.requests import (
    Answer,
    Change,
    Changed,
    ChangeStates,
    Drop,
    Key,
    Locate,
    Located,
    ReadState,
    Request,
    Was,
    WriteState,
    decode,
    decode_answer,
    encode,
    is_about_shares,
    states_of,
)
from duramen.delivery.spans import Phase

COUNTS = st.integers(0, 1 << 40)
OFFSETS = st.integers(-1, 1 << 40)
KEYS: st.SearchStrategy[Key] = st.tuples(st.text(max_size=9), st.binary(min_size=16, max_size=16), COUNTS)
SPOKEN = st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), max_size=3).map(tuple)
UPDATES = st.lists(st.tuples(OFFSETS, SPOKEN), max_size=3).map(tuple)
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(ReadState, KEYS, OFFSETS),
    st.builds(WriteState, KEYS, OFFSETS, COUNTS, OFFSETS, COUNTS, UPDATES),
    st.builds(
        ChangeStates,
        st.sampled_from(Change),
        OFFSETS,
        OFFSETS,
        st.lists(st.tuples(KEYS, OFFSETS, OFFSETS), max_size=3).map(tuple),
    ),
    st.builds(Locate, st.lists(KEYS, max_size=3).map(tuple)),
    st.builds(Drop, st.lists(KEYS, max_size=3).map(tuple)),
)
PLACES = st.lists(st.none() | st.tuples(OFFSETS, OFFSETS, OFFSETS), max_size=3).map(tuple)
REFUSED = st.lists(st.none() | st.builds(Refused, st.text(max_size=5), st.text(max_size=5)), max_size=3).map(tuple)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Was, OFFSETS, SPOKEN, COUNTS, OFFSETS), st.builds(Changed), st.builds(Located, PLACES, REFUSED)
)


@given(REQUESTS)
def test_requests_come_back(request: Request) -> None:
    body = encode(request)
    assert is_about_shares(body)
    assert not is_about_groups(body)
    assert decode(body) == request


@given(ANSWERS)
def test_answers_come_back(answer: Answer) -> None:
    assert decode_answer(encode(answer)) == answer


def test_a_refusal_comes_back_as_the_error_that_it_was() -> None:
    with pytest.raises(NotCoordinator, match="not here"):
        decode_answer(encode(Refused.of(NotCoordinator("not here"))))


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_something_or_refused(data: bytes) -> None:
    with contextlib.suppress(RequestInvalid):
        decode(b"\x01" + data)
    with contextlib.suppress(DuramenError):
        decode_answer(data)


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(RequestInvalid, match="about share groups"):
        decode(b"\x01\xc0")
    with pytest.raises(OutcomeUnknown, match="about share groups"):
        decode_answer(b"\xc0")
    for wrong in ((5, 4, Phase.AVAILABLE, 0), (4, 5, Phase.ACQUIRED, 0), (4, 5, 9, 0)):
        with pytest.raises(RequestInvalid, match="cannot be in phase"):
            states_of((wrong,))
