"""Kafka's compression codecs by number: 0 none, 1 gzip, 2 snappy, 3 lz4 (frames), 4 zstd.

Snappy has two forms: raw (librdkafka), and the framing of the Java library that Kafka uses (a header of 16 bytes, then
blocks, each after its length). Both are read, the framed one is written. Decompression never exceeds the caller's
bound, whatever a batch claims.
"""

from collections.abc import Callable

import cramjam

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer

__all__ = ["CODECS", "compress", "decompress"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_SNAPPY_BLOCK_BYTES = 32 * 1024
_SNAPPY_LARGEST_RATIO = 22  # three bytes make 64 at most
_LZ4_DEFAULT_LEVEL = 9
_LZ4_LEAST_HARD = 3
_FIRST_GUESS = 8  # a first buffer of this many times the compressed size, grown fourfold while it is too small


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed with the codec of that number (1 to 4); `level` is Kafka's for it, None its default."""
    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(data, level=None if level is None or level < 0 else level))
        case 2:
            parts = [_SNAPPY_HEADER]
            for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
                block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
                parts += (len(block).to_bytes(4, "big"), block)
            return b"".join(parts)
        case 3:
            return _lz4(data, level)
        case 4:
            return bytes(cramjam.zstd.compress(data, level=level))
        case _:
            raise ValueError(f"no codec has the number {codec}")


def _lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's Java clients read frames of independent blocks only; its default level stands for the fast compressor.
    fast = level is None or level == _LZ4_DEFAULT_LEVEL
    compressor = cramjam.lz4.Compressor(
        level=1 if fast else max(_LZ4_LEAST_HARD, level or 0), content_checksum=False, block_linked=False
    )
    compressor.compress(data)
    return bytes(compressor.finish())


def decompress(codec: int, data: Buffer, limit_bytes: int) -> bytes:
    """`data` decompressed; raises BatchCorrupt where it is damaged or holds more than `limit_bytes`."""
    match codec:
        case 1:
            return _grow(cramjam.gzip.decompress_into, data, limit_bytes)
        case 2:
            return _snappy(data, limit_bytes)
        case 3:
            return _grow(cramjam.lz4.decompress_into, data, limit_bytes)
        case 4:
            return _grow(cramjam.zstd.decompress_into, data, limit_bytes)
        case _:
            raise BatchCorrupt(f"no compression codec has the number {codec}")


def _grow(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit_bytes: int) -> bytes:
    size = min(limit_bytes, max(4096, _FIRST_GUESS * len(data)))
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise BatchCorrupt(f"compressed records are damaged: {error}") from None
            if size >= limit_bytes:
                raise BatchCorrupt(f"compressed records hold more than {limit_bytes} bytes") from None
            size = min(limit_bytes, 4 * size)
        else:
            return bytes(memoryview(out)[:written])


def _snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _SNAPPY_MAGIC:
        return _snappy_block(view, limit_bytes)
    parts: list[bytes] = []
    position, total = len(_SNAPPY_HEADER), 0
    while position < len(view):
        end = position + 4 + int.from_bytes(view[position : position + 4], "big")
        if end > len(view):
            raise BatchCorrupt("compressed records are damaged: a snappy block is cut off")
        part = _snappy_block(view[position + 4 : end], limit_bytes - total)
        total += len(part)
        parts.append(part)
        position = end
    return b"".join(parts)


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit_bytes:
            raise BatchCorrupt(f"compressed records hold more than {limit_bytes} bytes")
        if size > _SNAPPY_LARGEST_RATIO * len(block):
            raise BatchCorrupt(f"{len(block)} bytes of snappy cannot hold {size}")
        out = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise BatchCorrupt(f"compressed records are damaged: {error}") from None
    return bytes(out)
