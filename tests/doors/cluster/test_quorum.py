"""The quorum's messages survive the way; what is damaged is named, never believed."""

from contextlib import suppress
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.codec.cluster.channels import PeerChannel
from duramen.controller.quorum.snapshot_chunks import FetchChunk, SnapshotBytes, Wire
from duramen.doors.cluster.quorum import channel_of, from_bytes, to_bytes
from duramen.raft import messages
from duramen.raft.epochs import EpochEnd
from duramen.raft.voter_changes import VoterAddition, VoterRemoval, VoterUpdate
from duramen.raft.voters import ReplicaId, Voter, Voters

DIRECTORY = UUID(int=5)
SENDER = ReplicaId(1, str(DIRECTORY))

whole = st.integers(0, (1 << 63) - 1)
ends = st.builds(EpochEnd, whole, whole)
replicas = st.builds(ReplicaId, st.integers(0, (1 << 31) - 1), st.uuids().map(str))
voters = st.builds(Voter, replicas, st.text(max_size=20))
sets = st.lists(voters, max_size=5, unique_by=lambda voter: voter.id.node_id).map(Voters)
fetches = st.builds(messages.Fetch, st.just(SENDER), whole, ends, whole, whole, whole)
payloads = st.none() | st.binary(max_size=50)
batches = st.builds(messages.EntryBatch, whole, whole, st.integers(1, 100), payloads, st.none() | sets)
sender = st.just(SENDER)
all_messages = st.one_of(
    st.builds(messages.Vote, sender, whole, replicas, ends, st.booleans()),
    st.builds(messages.VoteAnswer, sender, whole, replicas, st.none() | replicas, st.booleans(), st.booleans()),
    st.builds(messages.BeginEpoch, sender, whole),
    st.builds(messages.EndEpoch, sender, whole, st.lists(replicas, max_size=4).map(tuple)),
    st.builds(messages.CurrentLeader, sender, whole, st.none() | replicas),
    fetches,
    st.builds(
        messages.FetchAnswer, sender, whole, fetches, whole, st.none() | ends, st.none() | ends,
        st.lists(batches, max_size=3).map(tuple),
    ),
    st.builds(FetchChunk, st.builds(messages.FetchSnapshot, sender, whole, ends), whole),
    st.builds(SnapshotBytes, sender, whole, ends, whole, whole, st.binary(max_size=50)),
    st.builds(
        messages.ChangeVoters, sender, whole,
        st.one_of(st.builds(VoterAddition, voters), st.builds(VoterRemoval, replicas), st.builds(VoterUpdate, voters)),
    ),
)  # fmt: skip


@given(all_messages)
def test_what_is_sent_is_received(message: Wire) -> None:
    received = from_bytes(to_bytes(message), (1, DIRECTORY))
    assert received == message
    assert type(received) is type(message)


@given(all_messages, st.data())
def test_what_is_damaged_is_refused_or_another_message_of_the_same_sender(message: Wire, data: st.DataObject) -> None:
    body = bytearray(to_bytes(message))
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        del body[at:]
    else:
        body[at] ^= data.draw(st.integers(1, 255))
    with suppress(RequestInvalid):
        assert _sender(from_bytes(body, (1, DIRECTORY))) == SENDER


def _sender(message: Wire) -> ReplicaId:
    return message.asked.sender if isinstance(message, FetchChunk) else message.sender


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_a_line(body: bytes) -> None:
    with pytest.raises(RequestInvalid, match="a message of the quorum is damaged"):
        from_bytes(body, (1, DIRECTORY))


def test_who_sends_in_the_name_of_another_is_refused() -> None:
    body = to_bytes(messages.BeginEpoch(SENDER, 7))
    for peer in ((2, DIRECTORY), (1, UUID(int=6))):
        with pytest.raises(
            RequestInvalid, match=f"1/{DIRECTORY} is not who sent this message: that was {peer[0]}/{peer[1]}"
        ):
            from_bytes(body, peer)


@pytest.mark.parametrize(
    "fields",
    [
        [3, [1, str(DIRECTORY)], -1],
        [3, [1, str(DIRECTORY)], 1 << 63],
        [3, [-1, str(DIRECTORY)], 1],
        [3, [1, "d" * 65], 1],
        [3, [1, str(DIRECTORY)]],
        [99, [1, str(DIRECTORY)], 1],
        [8, [1, str(DIRECTORY)], 1, [1, 1], -1],
        [9, [1, str(DIRECTORY)], 1, [1, 1], 0, 1, None],
        [10, [1, str(DIRECTORY)], 1, [1, [1, "a", "e" * 513]]],
        [
            7,
            [1, str(DIRECTORY)],
            1,
            [6, [1, str(DIRECTORY)], 1, [0, 0], 0, 0, 1],
            1,
            None,
            None,
            [[1, 0, 1, None, [[1, "a", ""], [1, "b", ""]]]],
        ],
        [
            7,
            [1, str(DIRECTORY)],
            1,
            [6, [1, str(DIRECTORY)], 1, [0, 0], 0, 0, 1],
            1,
            None,
            None,
            [[1, 0, 0, None, None]],
        ],
    ],
)
def test_values_that_cannot_be(fields: list[object]) -> None:
    with pytest.raises(RequestInvalid):
        from_bytes(msgspec.msgpack.encode(fields), (1, DIRECTORY))


def test_a_payload_is_bytes() -> None:
    fetch = messages.Fetch(SENDER, 1, EpochEnd(1, 1), 0, 0, 1)
    batch = messages.EntryBatch(1, 0, 1, ["state"])
    with pytest.raises(TypeError, match="a payload travels as bytes, not as list"):
        to_bytes(messages.FetchAnswer(SENDER, 1, fetch, 0, None, None, (batch,)))


def test_a_snapshot_travels_in_chunks() -> None:
    for message in (
        messages.FetchSnapshot(SENDER, 1, EpochEnd(1, 1)),
        messages.SnapshotAnswer(SENDER, 1, EpochEnd(1, 1), Voters(), b"state"),
    ):
        with pytest.raises(TypeError, match="a snapshot travels in chunks, not whole"):
            to_bytes(message)


def test_votes_and_batches_do_not_share_a_connection() -> None:
    assert channel_of(messages.BeginEpoch(SENDER, 1)) is PeerChannel.CONTROL
    assert channel_of(FetchChunk(messages.FetchSnapshot(SENDER, 1, EpochEnd(1, 1)), 0)) is PeerChannel.METADATA
