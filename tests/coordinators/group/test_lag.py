"""Lag in records and seconds: exact where it is asked for, and never shorter than it is where it is measured."""

from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.list_offsets import find_time
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.lag import lag_of
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.log.log import Log
from duramen.storage.segment.index import BLOCK_BYTES

_STRANGER = CommitMember("", None, -1)


def _commit(hand: ManualBroker, group: str, stream: str, partition: int, offset: int) -> None:
    ensured: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ensured)
    hand.settle()
    key = OffsetKey(group, stream, partition)
    done: CallbackResult[object] = CallbackResult()
    committed = CommittedOffset(offset, -1, "", hand.clock.wall_ms())
    hand.broker.groups.commit(group, _STRANGER, [(key, committed)], done)
    hand.settle()
    assert done.value == [None]


def _measured(hand: ManualBroker) -> dict[tuple[str, ...], tuple[float, float | None]]:
    for _ in hand.broker.measures.update():
        pass
    seconds = dict(hand.broker.lags.seconds())
    return {labels: (records, seconds.get(labels)) for labels, records in hand.broker.lags.records()}


def _time_of(hand: ManualBroker, log: Log, offset: int) -> int | None:
    found: CallbackResult[int | None] = CallbackResult()
    find_time(hand.store, log, offset, found)
    hand.settle()
    return found.value


def test_lag_counts_from_what_is_committed_or_the_start_to_the_high_watermark(hand: ManualBroker) -> None:
    hand.produce("a", b"1", b"2", b"3")
    hand.settle()
    log = hand.broker.streams.get("a").partition(0).log
    hand.produce("a", b"not synced yet")
    assert [lag_of(log, committed).records for committed in (0, 2, 3, 4, 99)] == [3, 1, 0, 0, 0]
    hand.settle()
    log.start_offset = 2
    assert [lag_of(log, committed).records for committed in (0, 2, 3)] == [2, 2, 1]


def test_a_group_falls_behind_and_catches_up(hand: ManualBroker) -> None:
    _commit(hand, "g", "a", 0, 0)
    assert _measured(hand) == {("g", "a", "0"): (0, 0)}
    hand.produce("a", b"1")
    hand.advance(2000)
    hand.produce("a", b"2")
    hand.advance(1000)
    assert _measured(hand) == {("g", "a", "0"): (2, 3)}
    _commit(hand, "g", "a", 0, 1)
    assert _measured(hand) == {("g", "a", "0"): (1, 1)}
    _commit(hand, "g", "a", 0, 2)
    assert _measured(hand) == {("g", "a", "0"): (0, 0)}
    _commit(hand, "g", "a", 2, 0)
    hand.delete("a")
    assert _measured(hand) == {}


def test_what_is_not_measured_is_counted() -> None:
    hand = ManualBroker({"metrics.partitions.max": 2})
    hand.create("a", partitions=3)
    for partition in range(3):
        _commit(hand, "g", "a", partition, 0)
    assert set(_measured(hand)) == {("g", "a", "0"), ("g", "a", "1")}
    assert hand.broker.lags.left_out == 1


@pytest.mark.parametrize("append_time", [False, True])
def test_the_time_is_the_batches_first_record_s_or_its_append_s(append_time: bool) -> None:
    hand = ManualBroker()
    hand.create("a", message_timestamp_type="LogAppendTime" if append_time else "CreateTime")
    started_ms = hand.clock.wall_ms()
    for _ in range(3):
        hand.produce("a", b"1", b"2")
        hand.advance(500)
    log = hand.broker.streams.get("a").partition(0).log
    expected = [started_ms, started_ms, started_ms + 500, started_ms + 500, started_ms + 1000, started_ms + 1000]
    assert [_time_of(hand, log, offset) for offset in range(6)] == expected
    hand.restart()
    hand.files.cold = True
    log = hand.broker.streams.get("a").partition(0).log
    assert [_time_of(hand, log, offset) for offset in range(6)] == expected


def _no_call(call: str, path: str, _: int) -> NoReturn:
    raise AssertionError(f"{call} {path}: measuring touched the disk")


_SIZES = st.lists(st.integers(1, BLOCK_BYTES * 2), min_size=1, max_size=12)


@given(_SIZES, st.integers(0, 11), st.booleans(), st.booleans())
def test_measuring_reads_no_disk_and_is_not_too_small_and_then_exact(
    sizes: list[int], offset: int, small_segments: bool, restarted: bool
) -> None:
    hand = ManualBroker()
    hand.create("a", segment_bytes=3 * BLOCK_BYTES if small_segments else 1 << 30)
    times = []
    for size in sizes:
        times.append(hand.clock.wall_ms())
        hand.produce("a", b"x" * size)
        hand.advance(1500)
    offset = min(offset, len(sizes) - 1)
    _commit(hand, "g", "a", 0, offset)
    if restarted:
        hand.restart()
    hand.files.cold = True
    now_ms = hand.clock.wall_ms()
    labels = ("g", "a", "0")
    hand.files.interfere = _no_call
    found = _measured(hand)[labels]
    hand.files.interfere = None
    exact = (now_ms - times[offset]) / 1000
    assert found[0] == len(sizes) - offset
    assert found[1] is not None
    assert exact <= found[1] <= (now_ms - times[0]) / 1000
    hand.settle()
    assert _measured(hand)[labels] == (len(sizes) - offset, exact)
