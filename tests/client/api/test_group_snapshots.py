"""Snapshots by group on a node that a test plays: long ones are held open, and nothing is asked too often."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from duramen.base.errors import SnapshotStartOver
from duramen.base.ids import Position
from duramen.client.api.group_snapshots import GroupCourse, GroupSnapshot
from duramen.client.api.http import Program, Question
from duramen.codec.batch import BatchInput, encode
from duramen.codec.shown_batches import encode_page


class Node:
    """Answers questions, and remembers them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[str] = []
        self.end = 0
        self.horizon = 0

    def run(self, program: Program[Any]) -> Any:
        try:
            question = next(program)
            while True:
                question = program.send(self.answer(question))
        except StopIteration as end:
            return end.value

    def answer(self, question: Question) -> object:
        url = urlsplit(question.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.asked.append(
            f"{question.method} {url.path.removeprefix('/v1/streams/users/snapshot')} {url.query}".strip()
        )
        if url.path.endswith("/records"):
            offset = int(query["offset"])
            batch = encode([BatchInput(0, b"k", b"v")], base_offset=offset)
            return encode_page(offset, offset + 1, 0, b"\xff", [batch])
        if "/leases" in url.path:
            return {
                "lease": "abc", "stream": "users", "partitions": [{"partition": 0, "at": 3}], "lease_ms": 6000
            }  # fmt: skip
        self.now_s += int(query.get("newer_wait_ms", "0")) / 1000
        return {"partitions": [{"partition": 0, "at": self.end, "horizon": self.horizon, "epoch": 2}]}

    def clock(self) -> float:
        return self.now_s


def course(node: Node, idle_s: float | None = None, committed: Mapping[int, int] | None = None) -> GroupCourse:
    made = GroupCourse("users", "cache", whole=False, idle_s=idle_s, clock=node.clock)
    made.begin({partition: Position(1, offset) for partition, offset in (committed or {}).items()})
    return made


def test_what_is_read_for_long_is_held_open_and_renewed() -> None:
    node = Node()
    snapshot = GroupSnapshot(node.run, course(node), {0: 3}, lambda: None)
    records = iter(snapshot)
    next(records)
    assert node.asked == ["GET /records partition=0&offset=0&max_bytes=4194304&at=3"]
    node.now_s += 5
    next(records)
    assert node.asked[1:] == ["POST /leases", "GET /records partition=0&offset=1&max_bytes=4194304&lease=abc"]
    assert len(list(records)) == 1
    snapshot.close()
    assert node.asked[-1] == "DELETE /leases/abc"


def test_a_snapshot_read_quickly_needs_no_lease() -> None:
    node = Node()
    assert len(list(GroupSnapshot(node.run, course(node), {0: 3}, lambda: None))) == 3
    assert [what for what in node.asked if "leases" in what] == []


def test_it_ends_when_nothing_comes_for_so_long() -> None:
    node = Node()
    reading = course(node, idle_s=12, committed={0: 5})
    node.end = 5
    assert node.run(reading.next()) is None
    waits = [what.rpartition("=")[2] for what in node.asked]
    assert waits == ["5000", "5000", "2000", "0"]
    node.end = 6
    assert node.run(reading.next()) == {0: 6}
    assert node.asked[-1] == "GET  newer_than=0%3A5%402&newer_wait_ms=0"


def test_who_is_behind_the_tombstones_starts_over() -> None:
    node = Node()
    node.end, node.horizon = 9, 6
    assert node.run(course(node, committed={0: 6}).next()) == {0: 9}
    with pytest.raises(SnapshotStartOver, match="the group cache has read partition 0 of users up to 5"):
        node.run(course(node, committed={0: 5}).next())
    assert node.run(course(node).next()) == {0: 9}
