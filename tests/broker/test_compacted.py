"""Streams of the broker that are compacted: the settings reach storage, groups are found again from what is left."""

import pytest

from duramen.codec.batch import BatchInput, check, encode
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.views import MemoryStateStore

SETTINGS = {"log.cleaner.backoff.ms": 1000, "offsets.topic.num.partitions": 1}


def test_a_stream_is_compacted_by_its_settings_and_what_they_say_later() -> None:
    hand = ManualBroker(SETTINGS)
    stream = hand.create("s", cleanup_policy="delete", segment_bytes=1000, min_cleanable_dirty_ratio=0)
    log = stream.partition(0).log
    for number in range(40):
        batch = encode([BatchInput(hand.clock.wall_ms(), b"k", b"%d" % number * 50)])
        hand.store.append(log, batch, check(batch), hand.store.node_epoch, None)
        hand.settle()
    hand.advance(120_000)
    assert len(log.segments) > 3
    assert log.cleaned_offset == 0
    changed: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("s", {"cleanup.policy": "compact"}, changed)
    hand.settle()
    assert changed.error is None
    hand.advance(5_000)
    assert log.cleaned_offset == log.active.base_offset
    assert len(hand.values("s")) < 10
    assert hand.values("s")[-1] == b"39" * 50


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_closed_segment_is_compacted_within_the_backoff_with_default_settings(durability: str) -> None:
    hand = ManualBroker()
    log = hand.create("s", cleanup_policy="compact", durability=durability, segment_bytes=1000).partition(0).log
    for _ in range(3):
        begun_at = log.active.base_offset
        while log.active.base_offset == begun_at:
            batch = encode([BatchInput(hand.clock.wall_ms(), b"k", b"v" * 50)])
            hand.store.append(log, batch, check(batch), hand.store.node_epoch, None)
            hand.settle()
        assert log.cleaned_offset < log.active.base_offset
        hand.advance(hand.settings.integer("log.cleaner.backoff.ms"))
        assert log.cleaned_offset == log.active.base_offset
        assert len(hand.values("s")) < 5


def test_closed_segments_that_are_not_due_are_not_synced_early() -> None:
    hand = ManualBroker()
    streams = [
        hand.create("s", segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=1),
        hand.create("other", segment_bytes=1000),
    ]
    logs = [stream.partition(0).log for stream in streams]
    hand.advance(120_000)
    written = hand.metrics.counter("duramen_checkpoints_total").value
    for log in logs * 40:
        batch = encode([BatchInput(hand.clock.wall_ms(), b"k", b"v" * 50)])
        hand.store.append(log, batch, check(batch), hand.store.node_epoch, None)
        hand.settle()
    assert all(len(log.segments) > 3 for log in logs)
    hand.advance(45_000)
    assert hand.metrics.counter("duramen_checkpoints_total").value == written


def _commit(hand: ManualBroker, group: str, number: int) -> None:
    """A commit of a consumer without a group's membership."""
    answer: CallbackResult[list[object]] = CallbackResult()
    wanted = [(OffsetKey(group, "topic", 0), CommittedOffset(number, -1, "", hand.clock.wall_ms()))]
    hand.broker.groups.commit(group, CommitMember("", None, -1), wanted, answer)
    hand.settle()
    assert answer.value == [None]


def test_groups_are_found_again_in_a_compacted_log_of_offsets() -> None:
    hand = ManualBroker(SETTINGS)
    hand.create("topic")
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    log = hand.broker.streams.get(OFFSETS_STREAM).partition(0).log
    small = log.config._replace(segment_bytes=1000, compaction=log.config.compaction._replace(min_dirty_ratio=0))
    log.config = small
    for number in range(60):
        _commit(hand, f"group-{number % 4}", number)
    deleted: CallbackResult[None] = CallbackResult()
    hand.broker.groups.delete("group-3", deleted)
    hand.settle()
    _commit(hand, "group-0", 100)
    before = {group: list(hand.broker.groups.all_committed(group)) for group in map("group-{}".format, range(4))}
    hand.advance(120_000)
    assert log.cleaned_offset > 50
    assert log.size_bytes() < 2500
    for lost in (False, True):
        if lost:
            hand.stop()
            hand.rows = MemoryStateStore()
            hand.start()
        else:
            hand.crash(3)
        assert {group: list(hand.broker.groups.all_committed(group)) for group in before} == before
        assert hand.broker.groups.committed(OffsetKey("group-0", "topic", 0)) is not None
        assert not before["group-3"]
    assert not [report for report in hand.reports if "cannot be read" in report]
