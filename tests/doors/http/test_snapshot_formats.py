"""Pages of a snapshot in other formats than JSON say what the JSON says."""

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import duramen
from duramen.codec.batch import batches, records
from duramen.codec.shown_batches import decode_page
from duramen.node.process import NodeProcess

Row = tuple[int, bytes, bytes | None, int]
ARROW = "application/vnd.apache.arrow.stream"
BATCHES = "application/vnd.duramen.batches"
NDJSON = "application/x-ndjson"


def asked(node: NodeProcess, path: str, accept: str) -> tuple[int, Any, bytes]:
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("GET", path, headers={"Accept": accept})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def pages(node: NodeProcess, stream: str, query: str, accept: str) -> Iterator[bytes]:
    offset: str | None = "0"
    while offset is not None:
        path = f"/v1/streams/{stream}/snapshot/records?{query}&offset={offset}"
        status, headers, content = asked(node, path, f"text/html;q=0.5, {accept}")
        assert (status, headers["Content-Type"]) == (200, accept)
        yield content
        offset = headers["Duramen-Next-Offset"]


def of_lines(content: bytes) -> list[Row]:
    rows = map(json.loads, content.splitlines())
    return [
        (row["offset"], row["key"].encode(), row["value"] and row["value"].encode(), row["timestamp"]) for row in rows
    ]


def of_arrow(content: bytes) -> list[Row]:
    table = pa.ipc.open_stream(content).read_all()
    return [
        (row["offset"], row["key"], row["value"], round(row["timestamp"].timestamp() * 1000))
        for row in table.to_pylist()
    ]


def of_batches(content: bytes) -> list[Row]:
    page = decode_page(content)
    found = []
    for at, head in batches(page.batches):
        for record in records(memoryview(page.batches)[at : at + head.size]):
            place = record.offset - page.base
            has_bit = place >> 3 < len(page.bits) and page.bits[place >> 3] >> (place & 7) & 1
            if has_bit and page.first <= record.offset < page.next_offset:
                found.append((record.offset, record.key or b"", record.value, record.timestamp))
    return found


def test_every_format_has_the_same_records(node: NodeProcess, stream_name: str) -> None:
    chance = Random(3)
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        for _ in range(30):
            client.produce(
                stream_name,
                [
                    duramen.NewRecord(None if chance.random() < 0.2 else "v" * chance.randrange(9000),
                                      key=f"k{chance.randrange(60)}", headers=[("h", b"1")])
                    for _ in range(10)
                ],
            )  # fmt: skip
        wanted = [(record.offset, record.key, record.value) for record in client.snapshot(stream_name)]
        newer = [record.offset for record in client.snapshot(stream_name).changes_since({0: 211})]
    for accept, rows_of in ((NDJSON, of_lines), (ARROW, of_arrow), (BATCHES, of_batches)):
        for query in ("at=300", "at=300&max_bytes=1", "at=300&max_bytes=16777216&limit=10000"):
            content = list(pages(node, stream_name, query, accept))
            found = [row for page in content for row in rows_of(page)]
            assert [row[:3] for row in found] == wanted
            assert all(row[3] > 1_600_000_000_000 for row in found)
        found = [row for page in pages(node, stream_name, "at=300&since=211", accept) for row in rows_of(page)]
        assert [row[0] for row in found] == newer
    assert len(list(pages(node, stream_name, "at=300&max_bytes=1", BATCHES))) > 1
    assert list(pages(node, stream_name, "at=0", NDJSON)) == [b""]
    assert (
        of_arrow(next(pages(node, stream_name, "at=0", ARROW)))
        == of_batches(next(pages(node, stream_name, "at=0", BATCHES)))
        == []
    )
    status, headers, _ = asked(node, f"/v1/streams/{stream_name}/snapshot/records?at=5000", ARROW)
    assert (status, headers["Content-Type"]) == (503, "application/problem+json")


@pytest.mark.long
def test_arrow_is_refused_where_pyarrow_is_not_installed(
    new_node: Callable[..., NodeProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    node = new_node().start()
    with duramen.connect(node.http) as client:
        client.streams.create("users", partitions=1, config={"keyed": True})
    status, _, content = asked(node, "/v1/streams/users/snapshot/records?at=0", ARROW)
    problem = json.loads(content)
    assert (status, problem["type"]) == (406, "answer-type-unavailable")
    assert "pip install pyarrow" in problem["detail"]
    assert asked(node, "/v1/streams/users/snapshot/records?at=0", BATCHES)[0] == 200
