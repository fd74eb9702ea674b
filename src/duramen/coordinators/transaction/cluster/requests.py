"""What nodes ask each other about transactions, and the responses."""

from typing import Annotated, Final

import msgspec

from duramen.rpc.errors import Refused
from duramen.rpc.methods import Method
from duramen.transactions.values import NO_SEQUENCE

__all__ = ["JOIN", "WRITE_MARKERS", "Join", "Joined", "WriteMarkers", "WriteMarkersResponse"]

_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """The leader of partitions asks the coordinator before it appends what a transaction writes there (KIP-890).

    With `joins` they are part of the transaction from then on; without, they have to be already. `partitions` are
    (stream, partition).
    """

    id: str
    producer_id: int
    epoch: int
    joins: bool
    partitions: tuple[tuple[str, _Count], ...]


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    """It may append. `begins` says of each partition whether it has joined just now."""

    coordinator_epoch: int
    begins: tuple[bool, ...]


class WriteMarkers(msgspec.Struct, frozen=True, array_like=True, tag="markers"):
    """The coordinator asks a leader to end a transaction in partitions of (stream id, partition).

    `coordinator` is the partition of `__transaction_state`, which its asker leads in `coordinator_epoch`. Of `version`
    2 on the marker's epoch is higher than any that the transaction has written in (KIP-890). `sequence` is the
    transaction's commit sequence, which older nodes do not know of.
    """

    coordinator: _Count
    coordinator_epoch: int
    producer_id: int
    epoch: int
    commit: bool
    version: int
    partitions: tuple[tuple[_StreamKey, _Count], ...]
    sequence: int = NO_SEQUENCE


class WriteMarkersResponse(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """For each partition None where all replicas in sync have the marker, or why not."""

    results: tuple[Refused | None, ...]


JOIN: Final = Method("join-transaction", Join, Joined, idempotent=False)
WRITE_MARKERS: Final = Method("write-markers", WriteMarkers, WriteMarkersResponse, idempotent=True)
