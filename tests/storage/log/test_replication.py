"""A log that is replicated: readers see what is committed, and only who leads orders batches."""

import pytest

from duramen.base.errors import DuramenError, NotLeader, OutOfOrderSequence
from duramen.codec.batch import TRANSACTIONAL, BatchInput, check, encode, header, stamp
from duramen.codec.markers import encode_marker
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.log.refused_batches import NEW_LEADER_MS
from duramen.storage.log.replication import Replicated
from duramen.storage.segment.reader import Slice


def replicated(store: StoreOnDoubles, config: LogConfig | None = None, *, leads: bool = True) -> tuple[Log, Replicated]:
    log = store.log(0, config or LogConfig())
    log.replicated = Replicated(log.start_offset, log.end_offset)
    log.replicated.leader_epoch = store.store.node_epoch if leads else None
    return log, log.replicated


def in_transaction(store: StoreOnDoubles, log: Log, *, end: bool) -> None:
    epoch = store.store.node_epoch
    batch = encode(
        [BatchInput(1, None, b"t")], attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0
    )
    if end:
        batch = encode_marker(1, 0, commit=True, coordinator_epoch=0, now_ms=1)
    store.store.append(log, batch, header(batch), epoch, None)
    store.settle()


def ordered(store: StoreOnDoubles, log: Log, offset: int, epoch: int, *, sequence: int = -1) -> AppendOutcome:
    """A batch as it comes from a leader, of a producer where it has a sequence."""
    producer_id = -1 if sequence < 0 else 7
    batch = encode([BatchInput(1, None, b"o")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    stamp(batch, offset, epoch)
    appended = AppendOutcome((b"o",))
    store.store.append_ordered(log, memoryview(bytes(batch)), check(batch), appended.done)
    return appended


@pytest.mark.parametrize("durability", ["sync", "os", "memory"])
def test_readers_see_what_is_committed_and_other_replicas_all(durability: str) -> None:
    store = StoreOnDoubles()
    log, state = replicated(store, LogConfig(durability=durability))
    for value in (b"a", b"b", b"c"):
        store.append(log, value)
    written = log.plan_written(0, 10_000)
    assert isinstance(written, Slice)
    assert store.bytes_of(written).count(b"a") == 1
    store.settle()
    assert (log.high_watermark, log.last_stable_offset, log.synced_offset) == (0, 0, 3)
    assert store.plan(log, 0, 10_000) is None
    state.high_watermark = 2
    assert store.values(log) == [b"a", b"b"]
    assert (log.high_watermark, log.visible_end(committed=True)) == (2, 2)
    state.high_watermark = 9
    assert log.high_watermark == 3


def test_what_is_written_is_read_by_replicas_before_it_is_synced() -> None:
    store = StoreOnDoubles()
    log, state = replicated(store)
    store.append(log, b"a")
    state.high_watermark = 1
    assert (log.synced_offset, log.high_watermark) == (0, 0)
    plan = log.plan_written(0, 10_000)
    assert isinstance(plan, Slice)
    assert header(store.bytes_of(plan)).base_offset == 0
    assert log.plan_written(1, 10_000) is None


def test_a_transaction_is_stable_when_its_marker_is_committed() -> None:
    store = StoreOnDoubles()
    log, state = replicated(store)
    in_transaction(store, log, end=False)
    in_transaction(store, log, end=True)
    state.high_watermark = 1
    assert log.last_stable_offset == 0
    state.high_watermark = 2
    assert log.last_stable_offset == 2


def test_after_a_start_nothing_is_stable_before_all_that_was_found_is_committed() -> None:
    store = StoreOnDoubles()
    log, _ = replicated(store)
    in_transaction(store, log, end=False)
    in_transaction(store, log, end=True)
    store.restart()
    log, state = replicated(store)
    state.high_watermark = 1
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    state.high_watermark = 2
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("durability", ["sync", "memory"])
def test_only_what_is_committed_is_let_go(durability: str) -> None:
    store = StoreOnDoubles()
    config = LogConfig(durability, segment_bytes=1000, memory_max_bytes=4000, retention_records=1)
    log, state = replicated(store, config)
    for number in range(40):
        store.append(log, b"%02d" % number * 200)
        store.settle()
    store.advance(2000)
    store.store.enforce_retention(store.clock.wall_ms())
    store.settle()
    assert log.start_offset == 0
    state.high_watermark = 20
    store.store.enforce_retention(store.clock.wall_ms())
    store.settle()
    assert 10 < log.start_offset <= 20


def test_who_follows_takes_only_what_is_ordered_and_as_it_is() -> None:
    store = StoreOnDoubles()
    log, state = replicated(store, leads=False)
    answers: list[DuramenError | None] = []
    store.store.follow(log, 3, 9, answers.append)
    first, again = ordered(store, log, 0, 3, sequence=5), ordered(store, log, 1, 3, sequence=8)
    own = store.append(log, b"mine")
    store.settle()
    assert (first.base_offset, again.base_offset) == (0, 1), "its leader has judged the sequences"
    assert isinstance(own.error, NotLeader)
    assert log.takeovers.rows() == [(3, 9, 0)]
    state.high_watermark = 2
    assert [record.offset for record in store.read(log)] == [0, 1]
    store.kill()
    assert store.log().takeovers.rows() == [(3, 9, 0)]
    assert store.values(store.log()) == [b"o", b"o"]


def test_what_waited_for_another_leadership_is_refused() -> None:
    store = StoreOnDoubles()
    log, state = replicated(store)
    store.append(log, b"a")
    store.settle()
    # A cut holds the log: what comes now waits for it.
    store.store.truncate(log, 0, store.store.node_epoch, lambda _: None)
    late, led = store.append(log, b"late"), state.leader_epoch
    assert led is not None
    state.leader_epoch = led + 1
    store.settle()
    assert isinstance(late.error, NotLeader)
    assert log.end_offset == 0
    state.leader_epoch = None
    assert ordered_now(store, log).error is None


def ordered_now(store: StoreOnDoubles, log: Log) -> AppendOutcome:
    found = ordered(store, log, log.end_offset, 0)
    store.settle()
    return found


def test_a_log_may_begin_with_a_batch_of_no_epoch() -> None:
    store = StoreOnDoubles()
    log, _ = replicated(store, leads=False)
    assert ordered(store, log, 0, -1).base_offset is None
    store.settle()
    store.crash()
    assert (store.log().end_offset, store.log().takeovers.rows()) == (1, [])


def test_each_batch_that_is_in_the_log_is_told() -> None:
    store = StoreOnDoubles()
    log, state = replicated(store)
    told: list[tuple[int, int, int]] = []
    state.on_append = lambda *batch: told.append(batch)
    epoch = store.store.node_epoch
    store.append(log, b"a", b"b")
    store.append(log, b"c", producer=(5, 0, 0))
    store.append(log, b"c", producer=(5, 0, 0))
    store.settle()
    assert told == [(epoch, 0, 2), (epoch, 2, 3)]


def from_producer(store: StoreOnDoubles, log: Log, sequence: int) -> DuramenError | None:
    """What a producer is answered to a batch with that sequence."""
    batch = encode([BatchInput(1, None, b"p")], producer_id=7, producer_epoch=0, base_sequence=sequence)
    answers: list[DuramenError | None] = []
    store.store.append(log, batch, check(batch), store.store.node_epoch, lambda _, error: answers.append(error))
    store.settle()
    (answer,) = answers
    return answer


def test_a_new_leader_does_not_know_what_the_one_before_it_refused() -> None:
    """On OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka raises its epoch, and sends again what is in the log already."""
    store = StoreOnDoubles()
    log, state = replicated(store)
    assert from_producer(store, log, 0) is None
    state.leads_since_ms = store.clock.monotonic_ms()
    assert isinstance(from_producer(store, log, 2), NotLeader)
    assert from_producer(store, log, 1) is None
    assert from_producer(store, log, 2) is None
    store.clock.advance(NEW_LEADER_MS)
    assert isinstance(from_producer(store, log, 4), OutOfOrderSequence)
