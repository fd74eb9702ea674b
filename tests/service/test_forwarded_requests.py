"""What nodes ask each other for their clients: fates and places come back; whatever is asked, nothing is held."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mutation import mutate
from tests.service.forwarding.world import WIRE, World

from duramen.base.errors import NodeBusy, NotLeader, OutcomeUnknown
from duramen.base.positions import At, Last, Position, Since
from duramen.service.forwarded_requests import (
    AppendRequest,
    AppendResponse,
    AppendResult,
    Delete,
    Manage,
    Read,
    Request,
    method_of,
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
    st.builds(
        AppendRequest, IDS, st.lists(st.tuples(INDEXES, st.binary(max_size=99).map(bytearray)), min_size=1, max_size=4)
    ),
    st.builds(Read, IDS, INDEXES, POSITIONS.map(where_of), st.integers(1, 1 << 20), st.integers(0, 60_000)),
    st.builds(Delete, IDS, INDEXES, OFFSETS),
    st.builds(Manage, st.sampled_from(["show", "move", "delete"]), st.text(max_size=9), st.binary(max_size=99)),
)
FATES = st.builds(
    AppendResult,
    OFFSETS,
    st.none() | st.sampled_from([NotLeader("x"), NodeBusy("y"), OutcomeUnknown("z")]),
    st.booleans(),
)


@given(st.lists(FATES, max_size=3))
def test_fates_come_back(fates: list[AppendResult]) -> None:
    assert [_shown(fate) for fate in AppendResponse.of(fates).read()] == [_shown(fate) for fate in fates]


def _shown(fate: AppendResult) -> tuple[int, str, bool]:
    return fate.base_offset, repr(fate.error), fate.unknown


@given(POSITIONS)
def test_positions_come_back(position: Position) -> None:
    assert position_of(where_of(position)) == position


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
    known: list[Request] = [AppendRequest(stream_id, [(0, batch), (5, bytearray(b"no batch"))]), *requests]
    for request in known:
        body = bytearray(WIRE.encode_request(method_of(request), request))
        if chance.random() < 0.7:
            mutate(body, chance)
        said: list[bytes] = []
        world.nodes[1].handle_request(body, said.append)
        world.advance(60_100, step_ms=20_000)
        assert len(said) == 1
    assert world.rooms[1].held_bytes == 0
    assert not world.sent
