"""What nodes ask each other for their clients: round trips, and bytes that are none of it."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.forwarding.world import World
from tests.mutation import mutate

from duramen.base.errors import DuramenError, NodeBusy, NotLeader, OutcomeUnknown, RequestInvalid
from duramen.base.positions import At, Last, Position, Since
from duramen.broker.forwarding.requests import (
    Answer,
    Append,
    Appended,
    Bytes,
    Delete,
    Deleted,
    Fate,
    Manage,
    Managed,
    Read,
    Request,
    decode,
    decode_answer,
    encode,
    position_of,
    where_of,
)

IDS = st.binary(min_size=16, max_size=16)
INDEXES = st.integers(0, 100)
OFFSETS = st.integers(-1, (1 << 63) - 1)
NUMBERS = st.integers(0, (1 << 63) - 1)
POSITIONS: st.SearchStrategy[Position] = st.one_of(
    st.sampled_from(["start", "end"]), st.builds(At, NUMBERS), st.builds(Last, NUMBERS), st.builds(Since, NUMBERS)
)
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(Append, IDS, st.lists(st.tuples(INDEXES, st.binary(max_size=99).map(bytearray)), min_size=1, max_size=4)),
    st.builds(Read, IDS, INDEXES, POSITIONS.map(where_of), st.integers(1, 1 << 20), st.integers(0, 60_000)),
    st.builds(Delete, IDS, INDEXES, OFFSETS),
    st.builds(Manage, st.sampled_from(["show", "move", "delete"]), st.text(max_size=9), st.binary(max_size=99)),
)
FATES = st.builds(
    Fate, OFFSETS, st.none() | st.sampled_from([NotLeader("x"), NodeBusy("y"), OutcomeUnknown("z")]), st.booleans()
)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.lists(FATES, max_size=3).map(Appended.of),
    st.builds(Bytes, OFFSETS, OFFSETS, st.binary(max_size=99)),
    st.builds(Deleted, OFFSETS),
    st.builds(Managed, st.binary(max_size=99)),
)


@given(REQUESTS)
def test_requests_come_back(request: Request) -> None:
    assert decode(bytearray(encode(request))) == request


@given(ANSWERS)
def test_answers_come_back(answer: Answer) -> None:
    assert decode_answer(bytearray(encode(answer))) == answer


@given(st.lists(FATES, max_size=3))
def test_fates_come_back(fates: list[Fate]) -> None:
    answer = decode_answer(encode(Appended.of(fates)))
    assert isinstance(answer, Appended)
    assert [_shown(fate) for fate in answer.read()] == [_shown(fate) for fate in fates]


def _shown(fate: Fate) -> tuple[int, str, bool]:
    return fate.base_offset, repr(fate.error), fate.unknown


@given(POSITIONS)
def test_positions_come_back(position: Position) -> None:
    assert position_of(where_of(position)) == position


def test_a_refusal_and_a_node_that_is_not_ready() -> None:
    refused = decode_answer(encode(NodeBusy("later")))
    assert isinstance(refused, NodeBusy)
    assert str(refused) == "later"
    assert isinstance(decode_answer(b""), NotLeader)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(body: bytes) -> None:
    with suppress(RequestInvalid):
        decode(body)
    with suppress(RequestInvalid):
        decode_answer(body)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@given(st.lists(REQUESTS, min_size=1, max_size=5), st.integers())
def test_whatever_other_nodes_ask_is_answered_or_refused_and_nothing_is_held(
    world: World, requests: list[Request], seed: int
) -> None:
    chance = random.Random(seed)
    stream_id = world.place("s").stream_id.bytes
    batch = world.batch(1, 0, b"value").content
    known: list[Request] = [Append(stream_id, [(0, batch), (5, bytearray(b"no batch"))]), *requests]
    for request in known:
        body = bytearray(encode(request))
        if chance.random() < 0.7:
            mutate(body, chance)
        said: list[bytes] = []
        try:
            world.nodes[1].asked(body, said.append)
        except RequestInvalid:
            continue
        world.advance(60_100, step_ms=20_000)
        (answer,) = said
        assert isinstance(decode_answer(answer), Appended | Bytes | Deleted | DuramenError)
    assert world.rooms[1].held_bytes == 0
    assert not world.sent
