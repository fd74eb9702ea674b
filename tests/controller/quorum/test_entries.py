"""Entries of the metadata log as record batches: what is written is read, and damage is never taken for an entry."""

from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duramen.base.errors import BatchCorrupt, RequestInvalid
from duramen.codec.quorum import LeaderChange, SnapshotGap, VoterRow, VotersSet, decode_control, encode_control
from duramen.controller.quorum.entries import (
    data_of,
    encode_events,
    events_of,
    gap,
    is_gap,
    leader_of,
    read_batch,
    written,
)
from duramen.metadata.events import GroupConfigured
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters

VOTER = st.builds(
    VoterRow,
    st.integers(0, 2**31 - 1),
    st.uuids(),
    st.one_of(st.just(""), st.builds("{}:{}".format, st.sampled_from(["h", "::1", "a.b"]), st.integers(0, 65535))),
)
VOTERS = st.lists(VOTER, max_size=5).map(tuple)
SET = Voters([Voter(ReplicaId(7, str(UUID(int=5))), "host:9093"), Voter(ReplicaId(8, str(UUID(int=6))))])


@given(VOTERS, st.integers(-1, 2**31 - 1))
def test_voters_are_read_as_they_were_written(voters: tuple[VoterRow, ...], leader_id: int) -> None:
    wished = VotersSet(voters, leader_id)
    assert decode_control(encode_control(wished, 5)) == wished
    bare = tuple(voter._replace(endpoint="") for voter in voters)
    assert decode_control(encode_control(LeaderChange(leader_id, voters), 5)) == LeaderChange(leader_id, bare)


@pytest.mark.parametrize("endpoint", ["host", ":1", "host:", "host:70000", "host:x"])
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    with pytest.raises(RequestInvalid, match="host:port"):
        encode_control(VotersSet((VoterRow(1, UUID(int=1), endpoint),)), 0)


def test_a_gap_has_the_offsets_that_it_stands_for() -> None:
    data = bytes(gap(1000, 7))
    assert decode_control(data) == SnapshotGap(1000)
    batch = read_batch(data)
    assert (batch.entries, is_gap(batch), leader_of(batch)) == (1000, True, -1)


def test_entries_have_one_form_for_leader_and_follower() -> None:
    events = [GroupConfigured("a", {"x": "1"}), GroupConfigured("b", {})]
    proposed = written(EntryBatch(4, 10, 2, encode_events(events, 1)), 7, SET, 1)
    opening = written(EntryBatch(4, 9), 7, SET, 1)
    naming = written(EntryBatch(4, 9, voters=SET), 7, NO_VOTERS, 1)
    for batch in (proposed, opening, naming):
        assert read_batch(data_of(batch)) == batch
    assert list(events_of(proposed)) == events
    assert (list(events_of(opening)), list(events_of(naming))) == ([], [])
    assert [leader_of(batch) for batch in (proposed, opening, naming)] == [-1, 7, 7]


@pytest.mark.parametrize("voters", [None, SET])
def test_no_flipped_bit_behind_the_stamp_is_believed(voters: Voters | None) -> None:
    sound = data_of(written(EntryBatch(4, 9, voters=voters), 7, SET, 1))
    for place in [*range(8, 12), *range(16, len(sound))]:
        damaged = sound[:place] + bytes([sound[place] ^ 4]) + sound[place + 1 :]
        with pytest.raises(BatchCorrupt):
            read_batch(damaged)
    for size in range(len(sound)):
        with pytest.raises(BatchCorrupt):
            read_batch(sound[:size])


def test_a_control_record_of_another_type_is_refused() -> None:
    data = encode_control(LeaderChange(1), 0)
    with pytest.raises(BatchCorrupt, match="not match its CRC"):
        read_batch(bytes(data[:-1]) + b"\1")
