"""Retention looks only at logs that changed or have aged, and lets go what a look at all of them would."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.floors import floors_of
from duramen.storage.log.log import Log, LogConfig, StreamFloor
from duramen.storage.maintenance.due import DueLogs
from duramen.storage.planning.retention import RetentionLimits, RetentionSegmentFacts, new_start

LOGS: Final = 3
CONFIGS = [
    LogConfig(segment_bytes=400),
    LogConfig(segment_bytes=400, retention_ms=50_000),
    LogConfig(segment_bytes=400, retention_bytes=900, segment_ms=30_000),
    LogConfig(segment_bytes=400, retention_records=4, floors=(StreamFloor("table", {0: 5, 1: 2}, 3),)),
    LogConfig(segment_bytes=400, retention_ms=20_000, floors=(StreamFloor("table", {0: 9}, 2),)),
]
CHANGES = st.one_of(
    st.tuples(st.just("append"), st.integers(0, LOGS - 1), st.integers(1, 8)),
    st.tuples(st.just("configure"), st.integers(0, LOGS - 1), st.sampled_from(CONFIGS)),
    st.tuples(st.just("advance"), st.just(0), st.integers(1, 40_000)),
    st.tuples(st.just("settle"), st.just(0), st.just(0)),
    st.tuples(st.just("enforce"), st.just(0), st.just(0)),
)


def left(log: Log, now_ms: int) -> int:
    """Where a look at the log would have it begin."""
    facts = [RetentionSegmentFacts(one.base_offset, end, one.size, one.max_timestamp) for one, end in log.with_ends()]
    limits = RetentionLimits(log.config.retention_ms, log.config.retention_bytes, log.config.retention_records)
    return new_start(facts, limits, floors_of(log), log.start_offset, now_ms)


@given(st.lists(CHANGES, max_size=40))
def test_nothing_is_left_that_a_look_at_every_log_would_let_go(changes: list[tuple[str, int, object]]) -> None:
    doubles = StoreOnDoubles()
    logs = [doubles.log(at, CONFIGS[at]) for at in range(LOGS)]
    for what, at, value in [*changes, ("settle", 0, 0), ("enforce", 0, 0)]:
        if what == "append" and isinstance(value, int):
            for number in range(value):
                doubles.append(logs[at], b"%d" % number * 60)
        elif what == "configure" and isinstance(value, LogConfig):
            doubles.store.configure(logs[at], value)
        elif what == "advance" and isinstance(value, int):
            doubles.advance(value)
        elif what == "settle":
            doubles.settle()
        elif what == "enforce":
            now_ms = doubles.clock.wall_ms()
            doubles.store.enforce_retention(now_ms)
            assert [left(log, now_ms) for log in logs] == [log.start_offset for log in logs]


def test_what_nobody_writes_to_is_not_looked_at_until_it_has_aged() -> None:
    doubles = StoreOnDoubles()
    logs = [doubles.log(at, LogConfig(retention_ms=50_000)) for at in range(3)]
    for log in logs:
        doubles.append(log, b"a")
    doubles.settle()
    doubles.advance(10_000)
    due, now_ms = DueLogs(logs), doubles.clock.wall_ms()
    assert due.take(now_ms) == logs
    for log in logs:
        due.looked_at(log)
    assert due.take(now_ms) == []
    due.changed[logs[1]] = None
    assert due.take(now_ms) == [logs[1]]
    due.looked_at(logs[1])
    assert due.take(now_ms + 60_000) == logs


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(retention_ms=50_000)])
def test_a_log_without_records_is_never_looked_at(config: LogConfig) -> None:
    log = StoreOnDoubles().log(0, config)
    due = DueLogs([log])
    for looked in due.take(0):
        due.looked_at(looked)
    assert due.take(1 << 62) == []
