"""What the native package does for queues, and its Python twins: the same of sound bytes and of hostile ones."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import BatchCorrupt
from duramen.base.ids import Position
from duramen.base.native import is_installed
from duramen.codec.batch import APPEND_TIME, CRC_START, BatchInput, encode, header
from duramen.codec.crc import crc32c
from duramen.codec.queue_entries import (
    VERSION_HEADER,
    encode_entries,
    entry_fields,
    plain_encode_entries,
    plain_entry_fields,
)  # fmt: skip
from duramen.queues.answers import plain_run_records, run_records
from duramen.queues.operations import ack_record, delete_record, edit_record
from duramen.queues.rows import Overlay, edited_run, plain_edited_run
from duramen.queues.runs import Body, Run, body_of, body_with, entry_of, has_entries, runs
from duramen.queues.splitting import (
    newest_entry,
    plain_newest_entry,
    plain_split_changes,
    plain_split_runs,
    plain_split_shards,
    split_changes,
    split_runs,
    split_shards,
)  # fmt: skip

pytestmark = pytest.mark.skipif(not is_installed(), reason="the native package is not installed")

T = TypeVar("T")
LIMIT_BYTES = 1 << 20

names = st.sampled_from((b"ann", b"bob", "zoë".encode(), b"", b"\xff", b"x" * 255, b"x" * 256, b"\xed\xa0\x80"))
values = st.none() | st.binary(max_size=300)
times = st.integers(0, 1 << 42) | st.integers(-(1 << 62), 1 << 62)
own_headers = st.sampled_from(((), (), (), ((b"h", None),), ((b"g", b""), (b"h", b"v"))))
all_headers = own_headers | st.just(((b"duramen-queue-key", b"k"), (VERSION_HEADER, b"+9"), (VERSION_HEADER, b"_")))
inputs = st.builds(BatchInput, times, st.none() | names, values, all_headers)
plain = st.builds(BatchInput, times, names, values, st.just(()))
flips = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3)


@st.composite
def batch_lists(draw: st.DrawFn, plain: st.SearchStrategy[BatchInput] = plain) -> list[bytes]:
    """Batches of a log, some of them compressed, damaged, of another leader epoch, or with other headers."""
    found, offset = list[bytes](), 0
    for _ in range(draw(st.integers(1, 4))):
        new = draw(st.lists(plain if draw(st.integers(0, 3)) else inputs, min_size=1, max_size=12))
        attributes = draw(st.sampled_from((0, 0, 0, APPEND_TIME)))
        epoch, codec = draw(st.sampled_from((3, 3, 3, 4))), draw(st.sampled_from((0, 0, 1, 3)))
        batch = encode(new, base_offset=offset, leader_epoch=epoch, codec=codec, attributes=attributes)
        for at, byte in draw(flips) if draw(st.booleans()) else ():
            batch[at % len(batch)] ^= byte
        if draw(st.booleans()):
            batch[17:21] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
        found.append(bytes(batch))
        offset += len(new)
    return found


def outcome(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except BatchCorrupt:
        return None


@settings(max_examples=examples(100), deadline=None)
@given(batch_lists(), st.integers(0, 20), st.integers(30, 500))
def test_both_make_the_same_runs_of_batches(batches: list[bytes], first: int, limit: int) -> None:
    for position in range(len(batches)):
        assert split_runs(batches, position, first, limit) == plain_split_runs(batches, position, first, limit)


positions = st.builds(Position, st.integers(0, 1 << 31), st.integers(0, 1 << 20) | st.integers((1 << 63) - 3, 1 << 63))
ats = st.sampled_from(
    (b"", b"1", b"1.", b".1", b"01.1", b"1.01", b"1.1 ", b"1.1.1", b"1.+1", b"12345678901.1", b"1.\xff", None)
)
operations = (
    st.builds(edit_record, names, positions, values, times)
    | st.builds(delete_record, names, positions, times)
    | st.builds(ack_record, names, positions, times)
)  # fmt: skip


@st.composite
def changed_operations(draw: st.DrawFn) -> BatchInput:
    record = draw(operations)
    (op, kind), (at, text) = record.headers
    headers = draw(
        st.sampled_from([record.headers] * 20 + [((op, kind),), ((op, b"nack"), (at, text)), ((op, None), (at, text))])
        | st.just(((at, text), (op, kind))) | st.just(((op, kind), (at, text), (b"h", b"v")))
        | st.builds(lambda other: ((op, kind), (at, other)), ats)
    )  # fmt: skip
    return record._replace(headers=headers)


@settings(max_examples=examples(200), deadline=None)
@given(batch_lists(operations) | batch_lists(changed_operations()), st.integers(0, 20))
def test_both_find_the_same_operations_in_batches(batches: list[bytes], first: int) -> None:
    for position in range(len(batches)):
        assert split_changes(batches, position, first) == plain_split_changes(batches, position, first)


@settings(max_examples=examples(100), deadline=None)
@given(batch_lists())
def test_both_say_the_same_of_the_shards_of_a_batch(batches: list[bytes]) -> None:
    for batch in batches:
        for shard, shards in ((0, 1), (1, 3), (2, 3)):
            given_ = batch, shard, shards, LIMIT_BYTES
            assert newest_entry(*given_) == plain_newest_entry(*given_)
        assert split_shards(batch, 3, LIMIT_BYTES) == plain_split_shards(batch, 3, LIMIT_BYTES)


@st.composite
def some_bodies(draw: st.DrawFn) -> list[Body]:
    found, offset = list[Body](), draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 20))):
        key = draw(st.none() | st.binary(max_size=5))
        shown = draw(st.sampled_from((0, 0, 7))), draw(st.sampled_from((0, 0, 9)))
        body = body_of(draw(times), draw(values), key, draw(own_headers), shown)
        kind = draw(st.integers(0, 3))
        found.append((offset, b"" if kind == 0 else body_with(body, offset + 9, draw(values)) if kind == 1 else body))
        offset += draw(st.sampled_from((1, 1, 1, 5, 1 << 30)))
    return found


@settings(max_examples=examples(100), deadline=None)
@given(some_bodies(), st.integers(0, 20), st.integers(0, 3000), st.booleans())
def test_both_make_the_same_batch_of_a_run_and_it_says_what_the_run_has(
    bodies: list[Body], most: int, most_bytes: int, any_first: bool
) -> None:
    for _, run in runs(bodies, 7, 1 << 40):
        for start in (bodies[0][0], bodies[len(bodies) // 2][0]):
            made = run_records(run, b"ann", start, most, most_bytes, any_first=any_first)
            assert made == plain_run_records(run, b"ann", start, most, most_bytes, any_first=any_first)
            there = [one for one in Run(run).bodies() if one[1] and one[0] >= start][: made.entries]
            found = plain_entry_fields(made.batch)
            assert entry_fields(made.batch) == found
            assert found.positions == [f"7.{offset}" for offset, _ in there]
            entries = [entry_of(Position(7, offset), body) for offset, body in there]
            rows = list(zip(*found[1:], strict=True))
            assert rows == [(one.version, one.timestamp, one.key, one.value, one.headers) for one in entries]


@settings(max_examples=examples(100), deadline=None)
@given(some_bodies(), st.data())
def test_both_edit_the_same_run_and_it_has_what_the_edits_say(bodies: list[Body], data: st.DataObject) -> None:
    offsets = st.sampled_from([offset for offset, _ in bodies]) | st.integers(0, 1 << 41)
    edits = data.draw(st.dictionaries(offsets, st.builds(Overlay, st.integers(0, 1 << 62), st.booleans(), values)))
    last, run = next(runs(bodies, 7, 1 << 40))
    bodies = [one for one in bodies if one[0] <= last]
    edited = edited_run(run, edits)
    assert edited == plain_edited_run(run, edits)
    found = dict(Run(edited).bodies())
    assert max(found) == last
    assert has_entries(edited) == any(found.values())
    for offset, body in bodies:
        edit = edits.get(offset)
        if not body or edit is None:
            assert found[offset] == body
        elif edit.deleted:
            assert found[offset] == b""
        else:
            old, new = entry_of(Position(7, offset), body), entry_of(Position(7, offset), found[offset])
            assert new == old._replace(version=edit.version, value=edit.value)


@settings(max_examples=examples(100), deadline=None)
@given(batch_lists(), st.integers(0, 100))
def test_both_read_the_same_of_an_answer(batches: list[bytes], cut: int) -> None:
    data = b"".join(batches)
    data = data[: len(data) - cut] if cut < 50 else data
    assert outcome(lambda: entry_fields(data)) == outcome(lambda: plain_entry_fields(data))


def test_an_answer_says_the_version_of_an_entry_that_was_edited() -> None:
    batch = encode(
        [BatchInput(5, b"ann", b"v", ((VERSION_HEADER, b"17"), (b"h", b"v")))], base_offset=3, leader_epoch=2
    )
    assert header(batch).records == 1
    for fields in (entry_fields(batch), plain_entry_fields(batch)):
        assert [list(one) for one in fields] == [["2.3"], [17], [5], [None], [b"v"], [((b"h", b"v"),)]]


written = st.text(max_size=5) | st.just("x" * 255) | st.just("é" * 128) | st.just("\ud800")


@given(st.lists(st.tuples(written, st.none() | st.binary(max_size=200) | written | st.just(7)), max_size=20))
def test_both_encode_the_same_batch(entries: list[tuple[str, object]]) -> None:
    assert encode_entries(entries, 5) == plain_encode_entries(entries, 5)
