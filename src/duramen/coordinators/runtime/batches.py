"""Committed batches decoded for a state, with the producer of a transaction and its end markers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import CONTROL, TRANSACTIONAL, DecodedRecord, header, records
from duramen.codec.batch_filter import body, marker_type
from duramen.storage.scan import OnDamage

__all__ = ["CommittedBatch", "decoded", "unapplied", "without_markers"]


class CommittedBatch(NamedTuple):
    """Records; `marker` is the type of the transaction marker, None in other batches."""

    records: list[DecodedRecord]
    producer_id: int = -1
    transactional: bool = False
    marker: int | None = None


def decoded(found: Iterable[bytes], offset: int, lost: OnDamage) -> list[CommittedBatch]:
    """Batches from `offset` on; `lost` receives records that cannot be decoded, which are skipped."""
    return [_decoded(batch, offset, lost) for batch in found]


def _decoded(batch: bytes, offset: int, lost: OnDamage) -> CommittedBatch:
    head = header(batch)
    some, at = list[DecodedRecord](), head.base_offset
    try:
        if head.attributes & CONTROL:
            return CommittedBatch([], head.producer_id, transactional=True, marker=marker_type(body(batch, head)))
        for record in records(batch, verify=False):
            at = record.offset + 1
            if record.offset >= offset:
                some.append(record)
    except BatchCorrupt as error:
        lost(max(at, offset), head.next_offset - 1, error)
    return CommittedBatch(some, head.producer_id, bool(head.attributes & TRANSACTIONAL))


def unapplied(found: Iterable[bytes], offset: int) -> Sequence[DecodedRecord]:
    """The records of batches from `offset` on. Raises BatchCorrupt."""
    return [record for batch in without_markers(found) for record in records(batch) if record.offset >= offset]


def without_markers(found: Iterable[bytes]) -> list[bytes]:
    """The batches without transaction markers."""
    return [batch for batch in found if not header(batch).attributes & CONTROL]
