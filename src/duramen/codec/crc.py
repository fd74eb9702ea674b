"""CRC-32C (Castagnoli, RFC 3720) of Kafka's batches, the write-ahead log and the indexes."""

from fastcrc.crc32 import iscsi

__all__ = ["crc32c"]

crc32c = iscsi
"""`crc32c(buffer, initial=None) -> int`: `initial` is the CRC of the bytes before, to continue it."""
