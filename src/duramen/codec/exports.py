"""Pages of exports on the wire: entries of queues, and topics of the inventory. MessagePack arrays; pure.

entries    the version of the layout; names of queues; how many runs follow of each; runs (`duramen.queues.runs` has
their layout); the place behind which the next page begins, nil: there is none
topics     the version of the layout; of topics that were made together their last sequences, namespaces, counts and
names (a byte, then text in UTF-8, a line for each: as it is behind 0, with zstd behind 1); of those that
were moved or deleted their sequences, namespaces (0: deleted) and names; the last sequence of the page
where others follow, else nil; the sequences of topics with policies of their own, and these policies
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import BatchCorrupt
from duramen.codec.compression import decompress

__all__ = [
    "FIRST_SEQUENCES", "OS", "PACKED", "RAW", "SYNC", "ZSTD", "Headers", "RunsPage", "TopicsPage", "encode_runs_page",
    "encode_topics_page", "headers_at", "joined_names", "read_runs_page", "read_topics_page",
]  # fmt: skip

SYNC: Final = "sync"
OS: Final = "os"
FIRST_SEQUENCES: Final[Mapping[str, int]] = {SYNC: 0, OS: 1 << 39}
"""The first sequence of topics by durability: the id of a topic tells its durability, and rows need no byte for it."""

ZSTD: Final = 4
RAW: Final = b"\x00"
PACKED: Final = b"\x01"
_MOST_BYTES: Final = 16 << 20
_VERSION: Final = 1
_TOPICS_VERSION: Final = 2
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")

Headers = tuple[tuple[bytes, bytes | None], ...]


class RunsPage(NamedTuple):
    """Runs of queues, `counts` of each in the order of `names`; `after` is where the next page begins, if any."""

    names: list[bytes]
    counts: list[int]
    runs: list[bytes]
    after: bytes | None


class TopicsPage(NamedTuple):
    """Topics by the sequences of their shard; `after` is the last one where others follow, else None.

    `own_policies` are those of the topics `with_policies`, where they are asked for.
    """

    lasts: list[int]
    namespaces: list[int]
    counts: list[int]
    bodies: list[bytes]
    moved: list[int]
    moved_namespaces: list[int]
    moved_names: list[bytes]
    after: int | None
    with_policies: list[int]
    own_policies: list[dict[str, str]]


_Runs = tuple[int, list[bytes], list[int], list[bytes], bytes | None]
_Topics = tuple[
    int, list[int], list[int], list[int], list[bytes], list[int], list[int], list[bytes], int | None, list[int],
    list[dict[str, str]],
]  # fmt: skip
_RUNS: Final = msgspec.msgpack.Decoder(_Runs)
_TOPICS: Final = msgspec.msgpack.Decoder(_Topics)


def encode_runs_page(page: RunsPage) -> bytes:
    """A page in bytes."""
    return msgspec.msgpack.encode((_VERSION, *page))


def read_runs_page(content: bytes) -> RunsPage:
    """The page that bytes are. Raises BatchCorrupt."""
    try:
        version, *page = _RUNS.decode(content)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from None
    _check(version)
    return RunsPage(*page)


def encode_topics_page(page: TopicsPage) -> bytes:
    """A page in bytes."""
    return msgspec.msgpack.encode((_TOPICS_VERSION, *page))


def read_topics_page(content: bytes) -> TopicsPage:
    """The page that bytes are. Raises BatchCorrupt."""
    try:
        version, *page = _TOPICS.decode(content)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from None
    _check(version, _TOPICS_VERSION)
    return TopicsPage(*page)


def _unreadable(error: Exception) -> BatchCorrupt:
    return BatchCorrupt(f"a page of an export cannot be read: {error}")


def _check(version: int, known: int = _VERSION) -> None:
    if version != known:
        raise BatchCorrupt(f"a page of an export has the layout {version}; {known} is known here")


def headers_at(data: bytes, at: int) -> tuple[Headers, int]:
    """The headers that begin there in the body of an entry, and where they end."""
    count = _U32.unpack_from(data, at)[0]
    at += 4
    headers = list[tuple[bytes, bytes | None]]()
    for _ in range(count):
        size = _U32.unpack_from(data, at)[0]
        name = data[at + 4 : at + 4 + size]
        at += 4 + size
        size = _I32.unpack_from(data, at)[0]
        at += 4
        headers.append((name, None if size < 0 else data[at : at + size]))
        at += max(0, size)
    return tuple(headers), at


def joined_names(body: bytes) -> bytes:
    """Names of topics with line ends between them. Raises BatchCorrupt."""
    data = memoryview(body)[1:]
    return bytes(data) if body[:1] == RAW else decompress(ZSTD, data, _MOST_BYTES)
