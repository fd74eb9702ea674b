"""What compaction decides: which part of which log, which segments together, which records stay."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from duramen.codec.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL, BatchInput, Header, encode, header
from duramen.codec.batch_filter import body, marker_type, spans
from duramen.storage.planning.compaction import (
    Aborted,
    BatchVerdict,
    ByKey,
    Cleaner,
    CompactionConfig,
    CompactionSegmentFacts,
    FinishedTransactions,
    cleanable,
    groups,
)
from duramen.storage.planning.floors import Floor

NOW = 1_000_000


def committed(bound: int) -> list[Floor]:
    return [Floor("high watermark", bound)]


ANY = CompactionConfig(min_dirty_ratio=0)


def facts(*sizes: int) -> list[CompactionSegmentFacts]:
    """Segments of ten records each."""
    made = []
    for at, size in enumerate(sizes):
        first = 10 * at
        made.append(CompactionSegmentFacts(first, first + 10, size, first_timestamp=first, max_timestamp=first + 9))
    return made


class Newest:
    """A table of keys that is a dictionary."""

    def __init__(self, offsets: dict[bytes, int], latest: int) -> None:
        self.offsets = offsets
        self.latest = latest

    def newest(self, key: bytes) -> int:
        return self.offsets.get(key, -1)


def judge(
    batch: bytes | bytearray, newest: Newest, *, transactions: FinishedTransactions | None = None, last: bool = False,
    last_batches: dict[int, int] | None = None, retention_ms: int = 100, now_ms: int = NOW,
    keep_tombstones: bool = False,
) -> BatchVerdict:  # fmt: skip
    cleaner = Cleaner(
        ByKey(newest), now_ms=now_ms, delete_retention_ms=retention_ms,
        transactions=transactions or FinishedTransactions(), last_batches=last_batches or {},
        keep_tombstones=keep_tombstones,
    )  # fmt: skip
    return decide(cleaner, batch, last=last)


def decide(cleaner: Cleaner, batch: bytes | bytearray, *, last: bool = False) -> BatchVerdict:
    head = header(batch)
    data = body(batch, head)
    marker = marker_type(data) if head.attributes & CONTROL else None
    return cleaner.judge(head, list(spans(data, head.records)), marker, last=last)


def keyed(*rows: tuple[bytes | None, bytes | None], base: int = 0, producer: int = -1, attributes: int = 0) -> bytes:
    return bytes(
        encode(
            (BatchInput(NOW, key, value) for key, value in rows),
            base_offset=base,
            producer_id=producer,
            attributes=attributes,
        )
    )


def marker(type_: int, base: int, producer: int, horizon: int = -1) -> bytes:
    attributes = CONTROL | TRANSACTIONAL | (DELETE_HORIZON if horizon >= 0 else 0)
    key = b"\0\0" + type_.to_bytes(2, "big")
    at = horizon if horizon >= 0 else NOW
    return bytes(
        encode(
            [BatchInput(at, key, b"")], base_offset=base, producer_id=producer, producer_epoch=0, attributes=attributes
        )
    )


# -- which part of which log ----------------------------------------------------------------------------


def test_dirty_is_what_lies_between_the_cleaned_offset_and_the_bound() -> None:
    segments = facts(100, 100, 100, 100)
    found = cleanable(segments, 20, committed(40), ANY, NOW)
    assert found is not None
    assert (found.start, found.end, found.dirty_bytes, found.ratio) == (20, 40, 200, 0.5)
    assert cleanable(segments, 20, committed(40), CompactionConfig(min_dirty_ratio=0.5), NOW) is None, (
        "Kafka: more than the ratio"
    )
    bounded = cleanable(segments, 0, committed(35), ANY, NOW)
    assert bounded is not None
    assert bounded.end == 30, "a segment that reaches beyond min(high watermark, last stable offset) waits"
    assert cleanable(segments, 40, committed(40), ANY, NOW) is None
    assert cleanable([], 0, committed(40), ANY, NOW) is None


def test_what_is_not_settled_yet_and_what_is_young_wait_with_all_behind_them() -> None:
    segments = facts(100, 100, 100)
    segments[1] = segments[1]._replace(settled=False)
    found = cleanable(segments, 0, committed(30), ANY, NOW)
    assert found is not None
    assert found.end == 10
    young = [
        segment._replace(max_timestamp=NOW - 50) if at == 1 else segment for at, segment in enumerate(facts(1, 1, 1))
    ]
    lagging = cleanable(young, 0, committed(30), CompactionConfig(0, min_lag_ms=100), NOW)
    assert lagging is not None
    assert lagging.end == 10
    assert cleanable(young, 10, committed(30), CompactionConfig(0, min_lag_ms=100), NOW) is None


def test_a_record_that_waits_too_long_makes_a_log_overdue_whatever_its_ratio() -> None:
    segments = facts(1000, 1)
    rules = CompactionConfig(min_dirty_ratio=0.9, max_lag_ms=500)
    assert cleanable(segments, 10, committed(20), rules, 400) is None
    found = cleanable(segments, 10, committed(20), rules, 600)
    assert found is not None
    assert found.overdue
    dirtier = cleanable(facts(1, 1000), 10, committed(20), ANY, 600)
    assert dirtier is not None
    assert found.urgency > dirtier.urgency


def test_groups_take_no_more_than_a_segment_may_have() -> None:
    assert groups(facts(30, 30, 50, 100, 10), 50, 100) == [[0, 1], [2], [3], [4]]
    assert groups(facts(30, 30, 30), 20, 100) == [[0, 1]], "what begins behind the end is left alone"
    segments = facts(10, 10, 10, 10)
    segments[1] = segments[1]._replace(sound=False)
    assert groups(segments, 40, 100) == [[0], [2, 3]]
    far = [
        CompactionSegmentFacts(0, 5, 1, 0, 0),
        CompactionSegmentFacts(5, 1 << 31, 1, 0, 0),
        CompactionSegmentFacts(1 << 31, 1 << 32, 1, 0, 0),
    ]
    assert groups(far, 1 << 32, 100) == [[0], [1], [2]], "offsets in an index are 31 bits"


# -- which records stay ---------------------------------------------------------------------------------


def test_the_newest_of_a_key_stays_and_what_was_not_looked_at() -> None:
    batch = keyed((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"a", b"4"))
    verdict = judge(batch, Newest({b"a": 2, b"b": 7}, latest=2))
    assert [span.offset_delta for span in verdict.kept] == [2, 3]
    assert not verdict.gone
    assert verdict.delete_horizon_ms == -1


def test_a_batch_without_records_goes_but_for_the_last_of_a_producer_or_a_segment() -> None:
    batch = keyed((b"a", b"1"), base=5, producer=9)
    newest = Newest({b"a": 8}, latest=8)
    assert judge(batch, newest).gone
    assert judge(batch, newest, last_batches={9: 4}).gone
    assert judge(batch, newest, last_batches={9: 5}) == BatchVerdict(gone=False, kept=[])
    assert judge(batch, newest, last=True) == BatchVerdict(gone=False, kept=[])


def test_a_tombstone_stays_its_time_after_the_round_that_first_saw_it() -> None:
    batch = keyed((b"a", None), (b"b", b"2"))
    newest = Newest({b"a": 0, b"b": 1}, latest=1)
    first = judge(batch, newest)
    assert first.delete_horizon_ms == NOW + 100
    assert len(first.kept) == 2
    unseen = judge(batch, Newest({}, latest=0))
    assert unseen.delete_horizon_ms == -1, "only a round that looked at all of the batch sets its horizon"
    marked = bytes(encode([BatchInput(NOW + 100, b"a", None)], attributes=DELETE_HORIZON))
    assert len(judge(marked, Newest({b"a": 0}, 0), now_ms=NOW + 99).kept) == 1
    assert judge(marked, Newest({b"a": 0}, 0), now_ms=NOW + 99).delete_horizon_ms == -1, "it is set once"
    assert judge(marked, Newest({b"a": 0}, 0), now_ms=NOW + 100).gone
    kept = judge(marked, Newest({b"a": 0}, 0), now_ms=NOW + 100, keep_tombstones=True)
    assert len(kept.kept) == 1, "what it deletes may be left in a segment that could not be compacted"


def test_aborted_records_go_and_their_marker_once_nothing_is_left_of_them() -> None:
    newest = Newest({b"a": 9, b"b": 1}, latest=9)
    cleaner = Cleaner(
        ByKey(newest),
        now_ms=NOW,
        delete_retention_ms=100,
        transactions=FinishedTransactions([Aborted(7, 1, 2)]),
        last_batches={},
    )
    assert not decide(cleaner, keyed((b"b", b"kept"), producer=8, attributes=TRANSACTIONAL, base=1)).gone
    assert decide(cleaner, keyed((b"b", b"not"), producer=7, attributes=TRANSACTIONAL, base=1)).gone
    assert decide(cleaner, marker(0, 2, 7)).delete_horizon_ms == -1, "this round found a batch of it"
    again = Cleaner(
        ByKey(newest),
        now_ms=NOW,
        delete_retention_ms=100,
        transactions=FinishedTransactions([Aborted(7, 1, 2)]),
        last_batches={},
    )
    assert decide(again, marker(0, 2, 7)).delete_horizon_ms == NOW + 100, "nothing is left of it: its time runs"
    assert decide(again, marker(1, 3, 8)).delete_horizon_ms == NOW + 100
    assert decide(again, marker(1, 4, 8, horizon=NOW)).gone
    assert not decide(again, marker(1, 5, 8, horizon=NOW + 1)).gone


def test_a_commit_marker_stays_while_records_of_its_transaction_do() -> None:
    cleaner = Cleaner(
        ByKey(Newest({b"a": 0}, 9)),
        now_ms=NOW,
        delete_retention_ms=0,
        transactions=FinishedTransactions(),
        last_batches={},
    )
    decide(cleaner, keyed((b"a", b"1"), producer=3, attributes=TRANSACTIONAL))
    verdict = decide(cleaner, marker(1, 1, 3, horizon=0))
    assert not verdict.gone
    assert len(verdict.kept) == 1


# -- against a dictionary -------------------------------------------------------------------------------

rows = st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.one_of(st.none(), st.binary(max_size=3)))
histories = st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=12)


def state(records: Sequence[tuple[int, bytes | None, bool]]) -> dict[bytes, int]:
    """Who reads from the start has these keys, each with the offset of its newest record."""
    found: dict[bytes, int] = {}
    for offset, key, tombstone in records:
        if key is not None and tombstone:
            found.pop(key, None)
        elif key is not None:
            found[key] = offset
    return found


@given(histories, st.integers(0, 50), st.booleans())
def test_a_reader_from_the_start_ends_with_the_same_state(
    history: list[list[tuple[bytes, bytes | None]]], latest: int, expired: bool
) -> None:
    base, batches = 0, []
    for new in history:
        batches.append(keyed(*new, base=base))
        base += len(new)
    latest = min(latest, base - 1)
    everything: list[tuple[int, bytes | None, bool]] = []
    for batch in batches:
        head: Header = header(batch)
        everything += [
            (head.base_offset + span.offset_delta, span.key, span.tombstone)
            for span in spans(body(batch, head), head.records)
        ]
    offsets = {key: offset for offset, key, _ in everything if key is not None and offset <= latest}
    kept: list[tuple[int, bytes | None, bool]] = []
    for batch in batches:
        head = header(batch)
        verdict = judge(batch, Newest(offsets, latest), retention_ms=0 if expired else 100)
        kept += [(head.base_offset + span.offset_delta, span.key, span.tombstone) for span in verdict.kept]
    assert state(kept) == state(everything)
    assert set(kept) <= set(everything)
    survivors = [one for one in kept if one[0] <= latest]
    assert len({key for _, key, _ in survivors}) == len(survivors), "below the bound every key is there once"
