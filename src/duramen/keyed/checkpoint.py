"""A view's checkpoint: its position and everything except its written pages. Two generations are kept. Pure.

8 bytes magic, uint32 CRC-32C of what follows, msgpack:
generation, stream id, partition, hash, secret, base, position, epoch of the record before it, S0, horizon,
samples, open transactions, pages written, the page that is not, partitions of the table, pieces of live,
`delete.retention.ms` as it was, partitions of the table that lie in files: then those that are here are empty
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import Buffer
from duramen.codec.crc import crc32c
from duramen.keyed.hashing import SECRET_BYTES
from duramen.keyed.kernel import Kernel
from duramen.keyed.latest import PARTITIONS
from duramen.keyed.latest_files import PartStore, TablePart
from duramen.keyed.prev import PAGE_RECORDS, PageFacts, PageStore
from duramen.keyed.samples import PositionSample
from duramen.keyed.view import KeyedView

__all__ = [
    "CRC_END",
    "HEAD_BYTES",
    "LogPositions",
    "ViewCheckpoint",
    "decode",
    "encode",
    "generation_of",
    "newest",
    "problem",
    "restore",
]

_MAGIC: Final = b"DURKEY01"
_FILED_MAGIC: Final = b"DURKEY02"
"""Of a view whose table is in files."""
CRC_END: Final = 12
"""The end of the checksum, which covers everything after it."""
_PIECE_BYTES: Final = 1 << 20
_ARRAY: Final = struct.Struct(">BH")
_LONG_ARRAY: Final = struct.Struct(">BI")
_BINARY: Final = struct.Struct(">BI")
_PAIR: Final = b"\x92"
_INTEGERS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
HEAD_BYTES: Final = CRC_END + _ARRAY.size + 9
"""The number of bytes at its start that have its generation."""

_Range = tuple[int, int]


class ViewCheckpoint(NamedTuple):
    """The content of a checkpoint; `epoch` is the leader epoch of the record before `position`, or -1."""

    generation: int
    stream_id: bytes
    partition: int
    hash_id: int
    secret: bytes
    base: int
    position: int
    epoch: int
    s0: int
    horizon: int
    samples: list[PositionSample]
    open: dict[int, list[_Range]]
    next_page: int
    pages: list[PageFacts]
    page: bytes
    table: list[tuple[int, memoryview]]
    live: list[tuple[int, memoryview]]
    tombstones_kept_ms: int = 0
    filed: list[TablePart] = []  # noqa: RUF012 - a tuple's default, which nobody changes


class LogPositions(NamedTuple):
    """The state of the log next to a checkpoint; `epoch_at` returns the leader epoch of a record, or -1."""

    stream_id: bytes
    partition: int
    start_offset: int
    end_offset: int
    epoch_at: Callable[[int], int]


_decoder = msgspec.msgpack.Decoder(ViewCheckpoint)
_encoder = msgspec.msgpack.Encoder()


def encode(view: KeyedView, log: LogPositions, generation: int) -> list[Buffer]:
    """A checkpoint of the present view, in pieces; large ones are the view's own memory, not copies.

    Of two checkpoints, the one with the larger generation applies.
    """
    next_page, pages, page = view.prev.state()
    table = [(count, words.cast("B")) for count, words in view.latest.parts()]
    live = [(number, memoryview(piece)) for number, piece in view.live.pieces()]
    large = {"table": table, "live": live}
    shape = ViewCheckpoint(
        generation=generation,
        stream_id=log.stream_id,
        partition=log.partition,
        hash_id=view.kernel.hash_id,
        secret=view.latest.secret,
        base=view.base,
        position=view.position,
        epoch=_epoch_before(log, view.position),
        s0=view.s0,
        horizon=view.horizon,
        samples=view.samples.rows(),
        open=view.counting.open,
        next_page=next_page,
        pages=pages,
        page=page,
        table=table,
        live=live,
        tombstones_kept_ms=view.tombstones_kept_ms,
        filed=[] if view.filed is None else view.filed.parts,
    )
    pieces: list[Buffer] = [_ARRAY.pack(0xDC, len(shape))]
    for name, field in zip(shape._fields, shape, strict=True):
        pieces += _large(large[name]) if name in large else [_encoder.encode(field)]
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return [(_MAGIC if view.filed is None else _FILED_MAGIC) + crc.to_bytes(4, "little"), *pieces]


def _large(field: Sequence[tuple[int, memoryview]]) -> Iterator[Buffer]:
    """A list of numbers and bytes in msgpack, without a copy of the bytes."""
    yield _LONG_ARRAY.pack(0xDD, len(field))
    for number, content in field:
        yield _PAIR + _encoder.encode(number) + _BINARY.pack(0xC6, len(content))
        yield content


def decode(content: Buffer) -> ViewCheckpoint:
    """Decode a checkpoint. Raises CheckpointInvalid if it is truncated, damaged or of another version."""
    view = memoryview(content).toreadonly().cast("B")
    if len(view) < CRC_END or bytes(view[:8]) not in (_MAGIC, _FILED_MAGIC):
        raise CheckpointInvalid("this is no checkpoint of a view")
    if crc32c(view[CRC_END:]) != int.from_bytes(view[8:CRC_END], "little"):
        raise CheckpointInvalid("the checkpoint of a view does not match its checksum")
    try:
        found = _decoder.decode(view[CRC_END:])
    except (msgspec.DecodeError, ValueError) as error:
        raise CheckpointInvalid(f"the checkpoint of a view is damaged: {error}") from None
    if (
        len(found.secret) != SECRET_BYTES
        or len(found.table) != PARTITIONS
        or not 0 <= found.base <= found.s0 <= found.position
        or any(len(words) % 16 or not words for _, words in found.table)
        or any(len(piece) != _PIECE_BYTES for _, piece in found.live)
        or len(found.filed) not in (0, PARTITIONS)
        or any(part.size % 16 or not part.size for part in found.filed)
        or (bytes(view[:8]) == _FILED_MAGIC) != bool(found.filed)
    ):
        raise CheckpointInvalid("the checkpoint of a view contradicts itself")
    return found


def problem(found: ViewCheckpoint, log: LogPositions, hash_id: int) -> str:
    """The reason why the checkpoint cannot be used with this log; empty if it can. Otherwise the view is rebuilt."""
    if (found.stream_id, found.partition) != (log.stream_id, log.partition):
        return "it is another stream's"
    if found.hash_id != hash_id:
        return "it was made with another hash"
    if found.position > log.end_offset:
        return f"it stands at {found.position}, and the log ends at {log.end_offset}"
    if found.position < log.start_offset:
        return f"it stands at {found.position}, and the log begins at {log.start_offset}"
    if found.position > log.start_offset and _epoch_before(log, found.position) != found.epoch:
        return f"it stands at {found.position} of a history that was cut"
    return ""


def generation_of(head: Buffer) -> int:
    """The generation in the start of a checkpoint; -1 if there is none."""
    number = bytes(head[CRC_END + _ARRAY.size : HEAD_BYTES])
    if not number or number[0] < 0x80:
        return number[0] if number else -1
    return int.from_bytes(number[1 : 1 + _INTEGERS.get(number[0], 0)], "big")


def newest(contents: Iterable[Buffer], log: LogPositions, hash_id: int) -> tuple[ViewCheckpoint | None, list[str]]:
    """The first usable checkpoint of the given ones; and the problems of those before.

    Contents are read one by one, so that one is in memory at a time: the newest must come first.
    """
    wrong: list[str] = []
    for content in contents:
        try:
            found = decode(content)
        except CheckpointInvalid as error:
            wrong.append(str(error))
            continue
        reason = problem(found, log, hash_id)
        if not reason:
            return found, wrong
        wrong.append(f"the checkpoint of a view is not used: {reason}")
    return None, wrong


def restore(
    found: ViewCheckpoint,
    kernel: Kernel,
    store: PageStore,
    *,
    page_records: int = PAGE_RECORDS,
    parts: PartStore | None = None,
) -> KeyedView:
    """The view at the checkpoint. Raises CheckpointInvalid if one of its pages is missing or damaged."""
    view = KeyedView(kernel, found.base, found.secret, store, page_records=page_records, parts=parts)
    view.position, view.s0, view.horizon = found.position, found.s0, found.horizon
    view.tombstones_kept_ms = found.tombstones_kept_ms
    for sample in found.samples:
        view.samples.add(sample)
    view.counting.open.update(found.open)
    view.prev.load((found.next_page, found.pages, found.page))
    for partition, (count, words) in enumerate(found.table):
        view.latest.load(partition, count, words)
    for number, piece in found.live:
        view.live.load(number, piece)
    if found.filed:
        view.file_table(found.filed)
    return view


def _epoch_before(log: LogPositions, position: int) -> int:
    return log.epoch_at(position - 1) if position > log.start_offset else -1
