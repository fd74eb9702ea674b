"""Entries of the metadata log: record batches on disk, and the batches of the quorum's state machine.

The state machine's batch has in `payload` the record batch with its offset and epoch stamped. Events are records; the
first entry of an epoch and sets of voters are control batches (`codec.quorum`). If the first entry of a log names the
voters, it is a set of voters with the leader in a field of its own.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import CONTROL, CRC_START, HEADER_BYTES, BatchInput, encode, header, records, stamp
from duramen.codec.crc import crc32c
from duramen.codec.plain import plain_values
from duramen.codec.quorum import (
    LeaderChange,
    SnapshotGap,
    VoterRow,
    VotersSet,
    decode_control,
    encode_control,
)
from duramen.metadata.events import Event, decode_events, encode_event
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["data_of", "encode_events", "events_of", "gap", "is_gap", "leader_of", "payload_of", "read_batch", "written"]

_LARGEST_BYTES: Final = 1 << 30
_NOBODY: Final = -1


def encode_events(events: Sequence[Event], now_ms: int) -> bytes:
    """A record batch of events, without offset and epoch; `now_ms` is the time since 1970."""
    return bytes(encode(BatchInput(now_ms, None, encode_event(event)) for event in events))


def written(batch: EntryBatch, leader_id: int, voters: Voters, now_ms: int) -> EntryBatch:
    """A leader's batch in its written form: `payload` is the record batch, stamped.

    An entry without a payload is the leader's own: a set of voters, or the first of its epoch, which names `voters`.
    """
    if isinstance(batch.payload, bytes):
        data = bytearray(batch.payload)
    elif batch.voters is not None:
        data = encode_control(VotersSet(_rows(batch.voters), leader_id), now_ms)
    else:
        data = encode_control(LeaderChange(leader_id, _rows(voters)), now_ms)
    stamp(data, batch.first, batch.epoch)
    return batch._replace(payload=bytes(data))


def gap(offsets: int, now_ms: int) -> bytearray:
    """A record batch in place of that many offsets of a snapshot."""
    return encode_control(SnapshotGap(offsets), now_ms)


def payload_of(payload: object) -> bytes:
    """The machine's opaque payload, as bytes. Raises BatchCorrupt."""
    if not isinstance(payload, bytes):
        raise BatchCorrupt("a batch of the metadata log has no bytes")
    return payload


def data_of(batch: EntryBatch) -> bytes:
    """The record batch of a written entry. Raises BatchCorrupt for others."""
    return payload_of(batch.payload)


def read_batch(data: bytes) -> EntryBatch:
    """A record batch in the machine's form. Raises BatchCorrupt if it is damaged."""
    found = header(data)
    if found.magic != 2 or found.size != len(data) or not HEADER_BYTES < len(data) <= _LARGEST_BYTES:
        raise BatchCorrupt("a batch of the metadata log has not the size that it says")
    if crc32c(memoryview(data)[CRC_START:]) != found.crc:
        raise BatchCorrupt("a batch of the metadata log does not match its CRC")
    voters = None
    if found.attributes & CONTROL:
        control = decode_control(data)
        voters = _voters(control.voters) if isinstance(control, VotersSet) else None
    return EntryBatch(found.leader_epoch, found.base_offset, found.last_offset_delta + 1, data, voters)


def events_of(batch: EntryBatch) -> list[Event]:
    """The events of a batch; none of a control batch. Raises BatchCorrupt."""
    data = data_of(batch)
    if header(data).attributes & CONTROL:
        return []
    values = plain_values(data)
    if values is None:
        values = [record.value for record in records(data, verify=False) if record.value is not None]
    return decode_events(values)


def leader_of(batch: EntryBatch) -> int:
    """The id of the leader whose epoch starts with this batch; -1 if it names none."""
    data = data_of(batch)
    control = decode_control(data) if header(data).attributes & CONTROL else None
    return _NOBODY if control is None or isinstance(control, SnapshotGap) else control.leader_id


def is_gap(batch: EntryBatch) -> bool:
    """Whether it is the placeholder for a snapshot's entries."""
    data = data_of(batch)
    return bool(header(data).attributes & CONTROL) and isinstance(decode_control(data), SnapshotGap)


def _rows(voters: Voters) -> tuple[VoterRow, ...]:
    return tuple(VoterRow(voter.id.node_id, UUID(voter.id.directory_id), voter.endpoint) for voter in voters)


def _voters(rows: Sequence[VoterRow]) -> Voters:
    return Voters(Voter(ReplicaId(row.node_id, str(row.directory_id)), row.endpoint) for row in rows)
