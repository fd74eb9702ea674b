"""Entries of queues as Arrow: what retrieving finds, whatever was done to them before, and however a shard is cut."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.queues.test_queues import ALL, HASH, NAMES, Shard, queue, steps, take

from duramen.codec.exports import encode_runs_page, read_runs_page
from duramen.queues.exporting import runs_page
from duramen.queues.machine import Edit, Enqueue
from duramen.queues.operations import NewEntry
from duramen.queues.positions import position_text
from duramen.queues.reading import retrieve
from duramen.spark.batches.queue_runs import entries_of
from duramen.spark.columns import QUEUE_COLUMNS


def exported(shard: Shard, max_bytes: int, edges: list[bytes]) -> list[dict[str, Any]]:
    """All entries of a shard, of ranges of hashes between edges, page by page."""
    rows = list[dict[str, Any]]()
    for first, end in zip([b"", *edges], [*edges, b""], strict=True):
        after: bytes | None = b""
        while after is not None:
            page = read_runs_page(encode_runs_page(runs_page(shard.rows, first, end, after, max_bytes)))
            after = page.after
            if page.runs:
                rows += entries_of(page, shard.now_ms, QUEUE_COLUMNS).to_pylist()
    return rows


def retrieved(shard: Shard) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    for name in sorted(NAMES, key=HASH):
        for one in retrieve(shard.rows, HASH(name), "start", ALL, ALL, shard.now_ms, delayed=True).entries:
            headers = [{"key": key.decode(), "value": value} for key, value in one.headers]
            rows.append(
                {
                    "queue": name.decode(), "position": position_text(one.position), "version": one.version,
                    "key": one.key, "value": one.value, "headers": headers or None, "enqueued_at": one.timestamp,
                }
            )  # fmt: skip
    return rows


def in_ms(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"enqueued_at": int(row["enqueued_at"].timestamp() * 1000)} for row in rows]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(steps, max_size=40), st.integers(1, 500), st.sets(st.binary(min_size=1, max_size=2), max_size=3))
def test_an_export_has_what_retrieving_finds(
    given_steps: list[tuple[object, ...]], max_bytes: int, edges: set[bytes]
) -> None:
    shard = Shard()
    for step in given_steps:
        take(shard, step)
    shard.apply(len(shard.log))
    assert in_ms(exported(shard, max_bytes, sorted(edges))) == retrieved(shard)


def test_headers_and_keys_and_columns_that_are_chosen() -> None:
    shard = Shard()
    headers = ((b"a", b"1"), (b"b", None), (b"\xff", b""))
    new = [NewEntry(b"v%d" % number, None if number % 2 else b"k", headers[: number % 4]) for number in range(40)]
    shard.submit(Enqueue([(NAMES[0], one) for one in new]))
    shard.submit(Edit(queue(NAMES[0]), [(one.at, None, None) for one in shard.model.queues[NAMES[0]][:3]]))
    shard.apply(len(shard.log))
    rows = exported(shard, 1, [])
    assert [row["headers"] and len(row["headers"]) for row in rows] == [number % 4 or None for number in range(40)]
    assert [row["value"] for row in rows] == [None] * 3 + [one.value for one in new[3:]]
    assert [row["version"] for row in rows[:4]] == [40, 41, 42, 3]
    assert rows[7]["headers"][2] == {"key": "\N{REPLACEMENT CHARACTER}", "value": b""}
    page = runs_page(shard.rows, b"", b"", b"", ALL)
    found = entries_of(page, shard.now_ms, ("value", "queue"))
    assert found.schema.names == ["value", "queue"]
    assert found.column("queue").to_pylist() == [NAMES[0].decode()] * 40


def test_a_timestamp_that_no_column_has_is_the_last_one_that_one_has() -> None:
    shard = Shard()
    shard.submit(Enqueue([(NAMES[0], NewEntry(b"v", timestamp=time_ms)) for time_ms in (7, (1 << 63) - 1)]))
    shard.apply(len(shard.log))
    page = runs_page(shard.rows, b"", b"", b"", ALL)
    found = entries_of(page, shard.now_ms, ("enqueued_at",)).column("enqueued_at")
    assert found.cast(pa.int64()).to_pylist() == [7_000, (1 << 63) - 1 - 807]
