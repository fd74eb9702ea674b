"""CRC-32C (Castagnoli, RFC 3720), which Kafka's batches, our write-ahead log and our indexes use."""

from fastcrc.crc32 import iscsi

__all__ = ["crc32c"]

crc32c = iscsi
"""`crc32c(buffer, initial=None) -> int`: pass the CRC of what came before as `initial` to go on with it."""
