"""What nodes say while they form a cluster survives the way; what is damaged is named."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.doors.cluster.formation import from_bytes, to_bytes
from duramen.raft.forming.values import ClusterProposal, FormationAttempt, FormationHello, Message, ProposeCluster
from duramen.raft.voters import ReplicaId, Voter, Voters

DIRECTORY = UUID(int=5)
SENDER = ReplicaId(1, str(DIRECTORY))

whole = st.integers(0, (1 << 63) - 1)
replicas = st.builds(ReplicaId, st.integers(0, (1 << 31) - 1), st.uuids().map(str))
attempts = st.builds(FormationAttempt, replicas, whole)
addresses = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
seeds = st.lists(addresses, max_size=4).map(tuple)
sets = st.lists(st.builds(Voter, replicas, addresses), max_size=5, unique_by=lambda voter: voter.id.node_id).map(Voters)
all_messages = st.one_of(
    st.builds(FormationHello, st.just(SENDER), seeds, whole, st.none() | attempts, st.none() | st.uuids()),
    st.builds(
        ProposeCluster, st.builds(ClusterProposal, st.builds(FormationAttempt, st.just(SENDER), whole), seeds, sets)
    ),
)


@given(all_messages)
def test_what_is_sent_is_received(message: Message) -> None:
    received = from_bytes(to_bytes(message), (1, DIRECTORY))
    assert received == message
    assert type(received) is type(message)


@given(all_messages, st.data())
def test_what_is_damaged_is_refused_or_of_the_same_sender(message: Message, data: st.DataObject) -> None:
    body = bytearray(to_bytes(message))
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        del body[at:]
    else:
        body[at] ^= data.draw(st.integers(1, 255))
    with suppress(RequestInvalid):
        received = from_bytes(body, (1, DIRECTORY))
        assert (
            received.sender if isinstance(received, FormationHello) else received.proposal.attempt.proposer
        ) == SENDER


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_a_line(body: bytes) -> None:
    with pytest.raises(RequestInvalid, match="a message about forming a cluster is damaged"):
        from_bytes(body, (1, DIRECTORY))


def test_nobody_speaks_for_another() -> None:
    for message in (
        FormationHello(SENDER, ("a",), 1),
        ProposeCluster(ClusterProposal(FormationAttempt(SENDER, 1), ("a",), Voters([Voter(SENDER, "a")]))),
    ):
        with pytest.raises(RequestInvalid, match="is not who sent this message: that was 2/"):
            from_bytes(to_bytes(message), (2, DIRECTORY))


@pytest.mark.parametrize("address", ["a\nb", "a b", "a\n", "\x1b[2J", "a" * 513])
def test_an_address_is_one_that_can_be_said_in_a_line(address: str) -> None:
    with pytest.raises(RequestInvalid, match="a message about forming a cluster is damaged"):
        from_bytes(to_bytes(FormationHello(SENDER, (address,), 1)), (1, DIRECTORY))


def test_a_node_votes_once() -> None:
    twice = Voters([Voter(SENDER, "a"), Voter(ReplicaId(1, str(UUID(int=6))), "b")])
    body = to_bytes(ProposeCluster(ClusterProposal(FormationAttempt(SENDER, 1), ("a", "b"), twice)))
    with pytest.raises(RequestInvalid, match="a set of voters has a node twice"):
        from_bytes(body, (1, DIRECTORY))
