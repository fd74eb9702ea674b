"""Record batches to Arrow and back, and the key scan: by the native package if installed, otherwise by its twins."""

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import pyarrow as pa

from duramen.base.ports import Buffer
from duramen.spark.batches import arrow, encoding, keyscan, native

__all__ = ["decode", "encode", "scan_keys", "warn_if_slow"]

_log = logging.getLogger("duramen.spark")


@cache
def warn_if_slow() -> None:
    """Log once per process that decoding is slower without the native package."""
    if not native.is_installed():
        _log.warning("duramen-native is not installed: records are decoded in Python, which is slower")


def decode(buffer: Buffer, first: int, end: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The records in `buffer` with an offset in `[first, end)`, as in `arrow.decode`.

    A read-only buffer must not change meanwhile.
    """
    return (
        native.decode(buffer, first, end, columns)
        if native.is_installed()
        else arrow.decode(buffer, first, end, columns)
    )


def encode(rows: pa.RecordBatch, batch_bytes: int, codec: int, now_ms: int) -> Sequence[tuple[Buffer, int]]:
    """The rows as record batches, as in `encoding.encode`."""
    rows = encoding.canonical(rows)
    return (
        native.encode(rows, batch_bytes, codec, now_ms)
        if native.is_installed()
        else encoding.encode(rows, batch_bytes, codec, now_ms)
    )


def scan_keys(buffer: Buffer, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """The last record of each key, as in `keyscan.scan_keys`."""
    if native.is_installed():
        return native.scan_keys(buffer, first, end)
    return keyscan.scan_keys(buffer, first, end)
