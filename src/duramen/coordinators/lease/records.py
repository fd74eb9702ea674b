"""The records of leases in `__snapshot_leases`: the key is the lease's id, the value JSON. Pure."""

from typing import Final
from uuid import UUID

import msgspec

from duramen.base.errors import BatchCorrupt
from duramen.base.ids import StreamId
from duramen.codec.batch import DecodedRecord
from duramen.keyed.leases import SnapshotLease

__all__ = ["LEASES_CONFIG", "LEASES_STREAM", "StoredLease", "decode_lease", "encode_lease"]

LEASES_STREAM: Final = "__snapshot_leases"
LEASES_CONFIG: Final = {"cleanup.policy": "compact", "durability": "sync", "segment.bytes": str(16 << 20)}


class _Value(msgspec.Struct, omit_defaults=True):
    """`partitions`: partition, position, leader epoch of the record before the position."""

    stream: UUID
    expires_ms: int
    opened_ms: int = 0
    partitions: list[tuple[int, int, int]] = []
    expired: bool = False


class StoredLease(msgspec.Struct, frozen=True):
    """A lease of a stream, open or expired."""

    stream_id: StreamId
    lease: SnapshotLease
    expired: bool = False


def encode_lease(stored: StoredLease) -> tuple[bytes, bytes]:
    """Key and value of the record. An expired lease has only its expiry."""
    lease = stored.lease
    partitions = [(index, position, lease.epochs.get(index, -1)) for index, position in lease.positions.items()]
    value = _Value(
        stored.stream_id, lease.expires_ms, lease.opened_ms, [] if stored.expired else partitions, stored.expired
    )
    return lease.lease_id.encode(), msgspec.json.encode(value)


def decode_lease(record: DecodedRecord) -> StoredLease | None:
    """The lease in a record; None for a tombstone. Raises BatchCorrupt."""
    if record.value is None:
        return None
    try:
        value = msgspec.json.decode(record.value, type=_Value)
        lease_id = (record.key or b"").decode()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BatchCorrupt(f"the record at offset {record.offset} is no lease: {error}") from None
    positions = {index: position for index, position, _ in value.partitions}
    epochs = {index: epoch for index, _, epoch in value.partitions}
    lease = SnapshotLease(lease_id, positions, value.expires_ms, value.opened_ms, epochs)
    return StoredLease(value.stream, lease, value.expired)
