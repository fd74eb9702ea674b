"""docs/storage-format.md says of sizes, positions and numbers what the code does."""

import re
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from duramen.codec import batch, markers
from duramen.storage import checkpoint, directory
from duramen.storage.log.state import LogState
from duramen.storage.segment import index
from duramen.storage.segment.segment import SegmentState, TailState
from duramen.storage.wal import frames, records, wal

PAGE = (Path(__file__).parents[2] / "docs" / "storage-format.md").read_text()
KINDS: Mapping[str, str] = {
    "uint8": "B", "int8": "b", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q", "int64": "q",
    "char[8]": "8s", "char[16]": "16s",
}  # fmt: skip


def table(head: str) -> list[list[str]]:
    """The rows of the table whose second column is called `head`."""
    lines = PAGE.splitlines()
    at = next(at for at, line in enumerate(lines) if re.match(rf"\| [a-z]* ?\| {re.escape(head)}", line))
    rows: list[list[str]] = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize(
    ("head", "layout"),
    [
        ("batch header", batch._HEADER.format),
        ("header", index._HEADER.format + "I"),
        ("entry", index._ENTRY.format + "I"),
        ("marker", markers._VALUE.format),
        ("frame", frames._HEADER.format),
        ("checkpoint", checkpoint._HEADER.format),
    ],
)
def test_headers(head: str, layout: str) -> None:
    rows = table(head)
    kinds = ">" + "".join(KINDS[kind] for _, kind, _ in rows if kind)
    assert kinds == layout
    place = 0
    for at, kind, _ in rows:
        assert int(at) == place
        place += struct.calcsize(">" + KINDS[kind]) if kind else 0


def test_sizes() -> None:
    assert (batch.HEADER_BYTES, index.INDEX_HEADER_BYTES, index.ENTRY_BYTES) == (61, 48, 24)
    assert int(table("batch header")[-1][0]) == batch.HEADER_BYTES
    assert int(table("frame")[-1][0]) == frames.FRAME_HEADER_BYTES
    assert "every 64 KiB block" in PAGE
    assert index.BLOCK_BYTES == 64 << 10


def test_frames() -> None:
    rows = table("name")
    assert {re.split(r"\W", name)[0]: int(number) for number, name, _ in rows} == {
        type_.name: type_.value for type_ in frames.FrameType
    }
    payloads = {
        re.split(r"\W", name)[0]: ">" + "".join(KINDS[kind] for kind in re.findall(r"u?int\d+|char\[\d+\]", payload))
        for _, name, payload in rows
    }
    assert payloads["TRUNCATE"] == records._TRUNCATE.format
    assert payloads["TAKEOVER"] == records._TAKEOVER.format
    assert payloads["LOG_CREATED"] == records._CREATED.format
    assert payloads["CHECKPOINT_ENTRY"] == records._CHANGE.format
    assert payloads["PRODUCERS_FORGOTTEN"] == records._FORGOTTEN.format
    assert struct.calcsize(payloads["FILE"]) == wal.FILE_PAYLOAD_BYTES
    durabilities = dict(re.findall(r"(\d) (sync|os|memory)", PAGE))
    assert [durabilities[str(number)] for number in range(3)] == list(records.DURABILITIES)


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("node", checkpoint.NodeCheckpoint.__struct_fields__),
        ("log", LogState.__struct_fields__),
        ("segment", SegmentState._fields),
        ("tail", TailState._fields),
    ],
)
def test_arrays(head: str, fields: tuple[str, ...]) -> None:
    rows = table(head)
    assert [int(number) for number, _, _ in rows] == list(range(len(fields)))
    for (_, kind, said), field in zip(rows, fields, strict=True):
        assert kind in {"integer", "bytes", "text", "array", "boolean"}
        assert said, field


def test_formats() -> None:
    assert PAGE.startswith(f"# Storage format\n\nFormat {directory.FORMAT}.")
    assert f"uint32 | format ({checkpoint.FORMAT})" in PAGE
    for magic in (index._MAGIC, checkpoint._MAGIC):
        assert f"`{magic.decode()}`" in PAGE
