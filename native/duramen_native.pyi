from collections.abc import Sequence
from typing import Final, TypeAlias

INTERFACE: Final[int]
__version__: Final[str]

class Rows:
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class Batches:
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

_Buffer: TypeAlias = bytes | bytearray | memoryview

def decode(data: _Buffer, position: int, first: int, end: int, columns: Sequence[str]) -> tuple[int, Rows]: ...
def scan_keys(data: _Buffer, position: int, first: int, end: int) -> tuple[int, Rows]: ...
def newest_keyed(batch: _Buffer, limit: int) -> int | None: ...
def encode(rows: object, batch_bytes: int, codec: int, now_ms: int) -> tuple[Batches, list[tuple[int, int]]]: ...
def apply(
    data: _Buffer,
    position: int,
    first: int,
    end: int,
    partitions: Sequence[memoryview],
    counts: memoryview,
    base: int,
    secret: bytes,
    distances: memoryview,
) -> tuple[int, int, int, int, list[tuple[int, int]], list[tuple[int, int]]]: ...
def copy(old: memoryview, new: memoryview, gone: _Buffer, first: int, base: int) -> int: ...
def gather(
    data: _Buffer, position: int, first: int, end: int, base: int, secret: bytes, rows: memoryview
) -> tuple[int, int, int, list[tuple[int, int]]]: ...
def order(rows: memoryview, order: memoryview, partitions: int) -> list[int]: ...
def enter(
    words: memoryview, keys: int, rows: memoryview, order: memoryview, base: int, distances: memoryview
) -> tuple[int, int, list[tuple[int, int]]]: ...
def visible(
    bits: bytearray | memoryview,
    base: int,
    runs: memoryview,
    distances: memoryview,
    far: memoryview,
    step: int,
) -> None: ...
def extract(
    data: _Buffer, position: int, first: int, end: int, bits: _Buffer, base: int, most_bytes: int
) -> tuple[int, int, bytes]: ...
def shown_fields(
    data: _Buffer, first: int, end: int, bits: _Buffer, base: int
) -> tuple[
    list[int],
    list[int],
    list[bytes | None],
    list[bytes | None],
    list[tuple[tuple[bytes, bytes | None], ...]],
]: ...
def split_runs(
    batches: Sequence[_Buffer], position: int, first: int, limit: int
) -> tuple[int, list[tuple[bytes, int, bytes]]]: ...
def encode_entries(entries: list[tuple[str, object]], now_ms: int) -> bytes | None: ...
def newest_entry(batch: _Buffer, shard: int, shards: int, limit: int) -> int | None: ...
def split_shards(batch: _Buffer, shards: int, limit: int) -> list[tuple[int, bytes, list[int]]] | None: ...
def run_records(
    run: bytes, name: bytes, start: int, most: int, most_bytes: int, first_in_any_case: bool
) -> tuple[bytes, int, int, int, bool] | None: ...
def entry_fields(
    data: _Buffer,
) -> tuple[
    list[str],
    list[int],
    list[int],
    list[bytes | None],
    list[bytes | None],
    list[tuple[tuple[bytes, bytes | None], ...]],
]: ...
def read_produce(
    data: _Buffer,
) -> tuple[int, int, int, str | None, int, str, int, int, int, tuple[int, ...]] | None: ...
def pack_names(
    names: list[str], namespace: int, shards: int, longest: int, most: int
) -> tuple[int, list[tuple[int, bytes, bytes, int, bytes]]] | None: ...
def unpack_names(body: bytes, limit: int) -> bytes: ...
def find_name(body: bytes, name: bytes, limit: int) -> int | None: ...
