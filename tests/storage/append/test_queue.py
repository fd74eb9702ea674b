"""In which order what waits goes on: batches keep theirs, whatever they wait for, and a cut comes in its turn."""

from duramen.base.errors import DuramenError
from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig


def _without_room(store: StoreOnDoubles) -> tuple[Log, list[AppendOutcome]]:
    """A log, and batches of one producer that wait for room, in the order of their sequences."""
    log = store.log()
    store.append(log, b"first")
    store.settle()
    while not store.backlogged:
        store.append(store.log(1), bytes(60_000))
        store.worker.run_soon()
    return log, [store.append(log, b"%d" % sequence, producer=(7, 0, sequence)) for sequence in range(2)]


def _settle(store: StoreOnDoubles) -> None:
    store.settle()
    store.advance(1000)


def test_batches_that_wait_for_room_go_before_a_cut_and_those_after_it_behind_it() -> None:
    store = StoreOnDoubles()
    log, waiting = _without_room(store)
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 2, store.store.node_epoch, answers.append)
    later = store.append(log, b"2", producer=(7, 0, 1))
    _settle(store)
    assert answers == [None]
    assert [one.base_offset for one in (*waiting, later)] == [1, 2, 2]
    assert store.values(log) == [b"first", b"0", b"2"]


def test_cuts_that_wait_keep_their_order() -> None:
    store = StoreOnDoubles()
    log, _ = _without_room(store)
    answers: list[DuramenError | None] = []
    for end_offset in (3, 1):
        store.store.truncate(log, end_offset, store.store.node_epoch, answers.append)
    later = store.append(log, b"later")
    _settle(store)
    assert answers == [None, None]
    assert later.base_offset == 1
    assert store.values(log) == [b"first", b"later"]


def test_a_cut_that_waits_for_room_is_not_made_once_the_log_is_deleted() -> None:
    store = StoreOnDoubles()
    log, waiting = _without_room(store)
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 1, store.store.node_epoch, answers.append)
    store.store.delete(log)
    _settle(store)
    assert [type(one.error).__name__ for one in waiting] == ["StreamNotFound"] * 2
    assert [type(answer).__name__ for answer in answers] == ["StreamNotFound"]


def test_batches_that_wait_for_room_keep_their_order_when_the_durability_changes() -> None:
    store = StoreOnDoubles()
    log, waiting = _without_room(store)
    for _ in range(10):
        store.append(store.log(1), bytes(60_000))
    waiting.append(store.append(log, b"2", producer=(7, 0, 2)))
    log.config = LogConfig(segment_bytes=64 << 10, durability="os")
    version = log.version
    while log.version == version:  # then the change has begun
        assert store.worker.step("sync") or store.worker.step("disk") or store.worker.step("read")
        store.worker.run_soon()
    assert store.backlogged
    waiting.append(store.append(log, b"3", producer=(7, 0, 3)))
    _settle(store)
    assert log.durability == "os"
    assert [one.base_offset for one in waiting] == [1, 2, 3, 4]


def test_who_is_answered_when_a_log_is_let_go_on_does_not_overtake_those_who_wait() -> None:
    store = StoreOnDoubles()
    log = store.log()
    store.append(log, b"0", producer=(7, 0, 0))
    store.settle()
    answers: list[DuramenError | None] = []
    late: list[AppendOutcome] = []

    def answered(base_offset: int, error: DuramenError | None) -> None:
        assert (base_offset, error) == (0, None)
        late.append(store.append(log, b"2", producer=(7, 0, 2)))

    store.store.truncate(log, 1, store.store.node_epoch, answers.append)
    repeated = encode([BatchInput(store.clock.wall_ms(), None, b"0")], producer_id=7, producer_epoch=0, base_sequence=0)
    store.store.append(log, repeated, check(repeated), store.store.node_epoch, answered)
    waited = store.append(log, b"1", producer=(7, 0, 1))
    _settle(store)
    assert answers == [None]
    assert [waited.base_offset, late[0].base_offset] == [1, 2]
