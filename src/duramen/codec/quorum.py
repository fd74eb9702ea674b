"""Control batches of the metadata log, of one record each, as in Apache Kafka's KRaft.

    key     int16 version (0), int16 type
    value   2  LeaderChange   int16 version (1), the leader, the voters that it leads, those that voted for it
            3  SnapshotHeader int16 version (0), int64 timestamp: what lies at the batch's offsets is in a snapshot
            6  Voters         int16 version (0), the voters from here on with their endpoints

All values are flexible: compact lengths, tagged fields. KIP-595, KIP-630, KIP-853.
"""

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, CRC_START, BatchInput, encode, records
from duramen.codec.crc import crc32c
from duramen.codec.kafka.schema import Message, Schema

__all__ = ["Control", "LeaderChange", "SnapshotGap", "VoterRow", "VotersSet", "decode_control", "encode_control"]

_LEADER_CHANGE, _SNAPSHOT_HEADER, _VOTERS = 2, 3, 6
_NOBODY: Final = -1

_KEY = struct.Struct(">hh")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_CRC_AT, _LAST_OFFSET_DELTA_AT = 17, 23  # in a batch

_LEADER_CHANGE_SCHEMA: Final = Schema(
    "LeaderChange",
    0,
    """
    version int16
    leader_id int32
    voters []
      id int32
      directory_id uuid
    granting_voters []
      id int32
      directory_id uuid
    """,
)
_VOTERS_SCHEMA: Final = Schema(
    "Voters",
    0,
    """
    version int16
    voters []
      id int32
      directory_id uuid
      endpoints []
        name string
        host string
        port int16
      kraft_version_feature {}
        min_supported_version int16
        max_supported_version int16
    leader_id int32 tag 10000 = -1
    """,
)
_SNAPSHOT_SCHEMA: Final = Schema(
    "SnapshotHeader",
    0,
    """
    version int16
    last_contained_log_timestamp int64
    """,
)
_ENDPOINT_NAME: Final = "CLUSTER"
_KRAFT_VERSION: Final = {"min_supported_version": 0, "max_supported_version": 1}


class VoterRow(NamedTuple):
    """A voter: its node, its directory's id, and `host:port`, empty where it is not known."""

    node_id: int
    directory_id: uuid.UUID
    endpoint: str = ""


class LeaderChange(NamedTuple):
    """An epoch begins, led by `leader_id`; without endpoints."""

    leader_id: int
    voters: tuple[VoterRow, ...] = ()


class VotersSet(NamedTuple):
    """These vote from here on. `leader_id` is the leader's whose epoch begins with it, else -1.

    The leader is a tagged field of ours (10000), which others pass over.
    """

    voters: tuple[VoterRow, ...]
    leader_id: int = _NOBODY


class SnapshotGap(NamedTuple):
    """So many offsets are in a snapshot, and nothing else of them is here."""

    offsets: int


Control = LeaderChange | VotersSet | SnapshotGap


def encode_control(control: Control, now_ms: int) -> bytearray:
    """The batch, without base offset and epoch. Raises RequestInvalid where an endpoint is no `host:port`."""
    match control:
        case LeaderChange(leader_id, voters):
            rows = _rows(voters)
            value = _LEADER_CHANGE_SCHEMA.encode(0, {"version": 1, "leader_id": leader_id, "voters": rows})
            return _sealed(_LEADER_CHANGE, value, now_ms)
        case VotersSet(voters, leader_id):
            voting = [
                row | {"endpoints": _endpoints(voter.endpoint), "kraft_version_feature": _KRAFT_VERSION}
                for row, voter in zip(_rows(voters), voters, strict=True)
            ]
            value = _VOTERS_SCHEMA.encode(0, {"version": 0, "voters": voting, "leader_id": leader_id})
            return _sealed(_VOTERS, value, now_ms)
        case SnapshotGap(offsets):
            value = _SNAPSHOT_SCHEMA.encode(0, {"version": 0, "last_contained_log_timestamp": now_ms})
            batch = _sealed(_SNAPSHOT_HEADER, value, now_ms)
            _INT32.pack_into(batch, _LAST_OFFSET_DELTA_AT, offsets - 1)
            _UINT32.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
            return batch


def decode_control(batch: Buffer) -> Control:
    """The content of a control batch of the metadata log. Raises BatchCorrupt, also for another type."""
    try:
        found = list(records(batch))
        if len(found) != 1 or found[0].key is None or found[0].value is None:
            raise BatchCorrupt("a control batch of the metadata log has one record with key and value")
        key, value = found[0].key, found[0].value
        version, type_ = _KEY.unpack(key)
        if version != 0:
            raise BatchCorrupt(f"no control record has the version {version}")
        return _decode(type_, value, int.from_bytes(memoryview(batch)[23:27], "big") + 1)
    except (struct.error, RequestInvalid, ValueError) as error:
        raise BatchCorrupt(f"a control batch of the metadata log is damaged: {error}") from None


def _decode(type_: int, value: bytes, offsets: int) -> Control:
    if type_ == _LEADER_CHANGE:
        message = _LEADER_CHANGE_SCHEMA.decode(0, value)
        return LeaderChange(message["leader_id"], tuple(map(_row, message["voters"])))
    if type_ == _VOTERS:
        message = _VOTERS_SCHEMA.decode(0, value)
        return VotersSet(tuple(map(_row, message["voters"])), message["leader_id"])
    if type_ == _SNAPSHOT_HEADER:
        _SNAPSHOT_SCHEMA.decode(0, value)
        return SnapshotGap(offsets)
    raise BatchCorrupt(f"the metadata log has no control records of the type {type_}")


def _sealed(type_: int, value: bytes, now_ms: int) -> bytearray:
    return encode([BatchInput(now_ms, _KEY.pack(0, type_), value)], attributes=CONTROL)


def _rows(voters: Iterable[VoterRow]) -> list[Message]:
    return [{"id": voter.node_id, "directory_id": voter.directory_id} for voter in voters]


def _endpoints(endpoint: str) -> list[Message]:
    if not endpoint:
        return []
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit() or int(port) > 0xFFFF:
        raise RequestInvalid(f"the endpoint {endpoint!r} of a voter is not of the form host:port")
    # Kafka's port has 16 bits and no sign.
    return [{"name": _ENDPOINT_NAME, "host": host, "port": _INT16.unpack(int(port).to_bytes(2, "big"))[0]}]


def _row(message: Message) -> VoterRow:
    endpoints: Sequence[Message] = message.get("endpoints", ())
    endpoint = f"{endpoints[0]['host']}:{endpoints[0]['port'] & 0xFFFF}" if endpoints else ""
    return VoterRow(message["id"], message["directory_id"], endpoint)
