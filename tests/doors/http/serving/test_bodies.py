"""NDJSON bodies that are decoded as a whole: the first bad line is named, at the cost of one."""

import asyncio
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from duramen.base.errors import RequestInvalid
from duramen.doors.http.serving.bodies import Bodies
from duramen.service.forwarding.memory import Room

GOOD = [b'{"name": "a"}', b' {"name": "\xc3\xa9"}\t']
BLANK = [b"", b" ", b"\r"]
BAD = [b"nope", b"{}", b"7", b'{"name": 7}', b'{"name": "\xff"}', b"[" * 5000, b'{"name": "a"} 1']


class Entry(msgspec.Struct):
    name: str


class Entries(msgspec.Struct):
    entries: list[Entry]


def read(content: bytes) -> Entries:
    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    request = Request({"type": "http", "headers": [(b"content-type", b"application/x-ndjson")]}, receive)
    found = asyncio.run(Bodies(Room(64 << 20)).read(request, Entries, 16 << 20, "entries"))
    assert isinstance(found, Entries)
    return found


@given(st.lists(st.sampled_from([*GOOD, *BLANK, *BAD]), max_size=8))
def test_the_first_bad_line_is_named(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    bad = [number for number, line in enumerate(lines, 1) if line in BAD]
    if not bad:
        assert len(read(content).entries) == sum(line in GOOD for line in lines)
        return
    with pytest.raises(RequestInvalid, match=f"^line {bad[0]} does not fit: .*; nothing of the body was stored$"):
        read(content)


def test_a_body_of_bad_lines_takes_the_memory_of_one_bad_line() -> None:
    content = b"x\n" * (1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(RequestInvalid, match=r"^line 1 does not fit"):
            read(content)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(content)
    finally:
        tracemalloc.stop()
