"""A log with damage is cut: what is sound before the end stays, and what is damaged is not served."""

import errno
import os

import pytest

from duramen.base.errors import DuramenError, LogDamaged, NodeStopping, StorageFailed, StorageFull, StreamNotFound
from duramen.codec.batch import batches
from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig


def _filled(store: StoreOnDoubles) -> Log:
    for value in (b"a", b"b", b"c", b"d", b"e"):
        store.append(store.log(), value)
    store.settle()
    store.restart()
    return store.log()


def _start(store: StoreOnDoubles, log: Log, number: int) -> int:
    """Where a batch begins in its file."""
    return [position for position, _ in batches(store.files.content(log.segments[0].path + ".log"))][number]


def _cut(store: StoreOnDoubles, log: Log, end_offset: int) -> None:
    answers: list[DuramenError | None] = []
    store.store.truncate(log, end_offset, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    assert log.high_watermark == end_offset


def _check(store: StoreOnDoubles, damaged: int) -> None:
    log = store.log()
    for offset, value in enumerate((b"a", b"b", b"c")):
        if offset == damaged:
            with pytest.raises(LogDamaged):
                store.read(log, offset)
        else:
            plan = store.plan(log, offset, 1)
            assert plan is not None
            found = store.bytes_of(plan)
            assert value in found
            assert next(head.base_offset for _, head in batches(found)) == offset


@pytest.mark.parametrize("damaged", [0, 1])
@pytest.mark.parametrize("byte", [7, 15, 60], ids=["offset", "epoch", "record"])
def test_what_is_damaged_before_the_end_costs_no_neighbour(damaged: int, byte: int) -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    store.files.corrupt(log.segments[0].path + ".log", _start(store, log, damaged) + byte, 4)
    _cut(store, log, 3)
    _check(store, damaged)
    assert store.append(log, b"f").base_offset is None
    store.settle()
    assert store.values(log, 3) == [b"f"]
    store.restart()
    _check(store, damaged)
    assert store.values(store.log(), 3) == [b"f"]


@pytest.mark.parametrize("byte", [7, 15, 60], ids=["offset", "epoch", "record"])
def test_the_same_where_the_cut_is_made_by_a_recovery(byte: int) -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    _cut(store, log, 3)
    store.files.corrupt(log.segments[0].path + ".log", _start(store, log, 1) + byte, 4)
    store.crash()
    assert store.log().high_watermark == 3
    _check(store, 1)


@pytest.mark.parametrize("later", [0, 1])
def test_a_cut_made_again_ends_where_the_first_one_did_though_its_file_is_gone(later: int) -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    store.append(log, b"f", b"g", b"h", b"i")
    store.restart()
    log = store.log()
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 7, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    assert log.high_watermark == 5, "a batch that reaches beyond the cut goes whole"
    log.config = LogConfig(segment_bytes=1)
    for value in (b"j", b"k")[:later]:
        store.append(log, value)
    store.settle()
    store.advance_without_syncing(1000)
    store.store.move_start(log, 5)
    store.settle()
    assert not store.files.exists(log.directory + "/00000000000000000000.log")
    store.append(log, b"l")
    store.settle()
    expected = [*[b"j", b"k"][:later], b"l"]
    for _ in range(2):
        store.kill()
        log = store.log()
        assert (log.start_offset, log.high_watermark) == (5, 5 + len(expected))
        assert store.values(log) == expected
        assert store.findings == []


def test_two_cuts_that_are_made_again_take_what_they_took() -> None:
    store = StoreOnDoubles()
    store.append(store.log(), b"a", b"b", b"c", b"d")
    store.append(store.log(), b"e")
    store.restart()
    log = store.log()
    _cut(store, log, 4)
    store.append(log, b"f", b"g")
    store.settle()
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 3, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    assert log.high_watermark == 0, "the first batch reaches beyond the cut"
    store.append(log, b"h")
    store.settle()
    store.crash()
    assert store.findings == []
    assert store.values(store.log()) == [b"h"]


@pytest.mark.parametrize("torn", [-1, 0, 1, 2])
def test_what_came_after_a_cut_is_not_taken_for_what_was_before_it_when_the_cut_is_made_again(torn: int) -> None:
    store = StoreOnDoubles()
    store.append(store.log(), b"a")
    store.append(store.log(), b"b" * 5000, b"c", b"d", b"e")
    store.settle()
    store.restart()
    log = store.log()
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 4, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    assert log.high_watermark == 1, "the second batch reaches beyond the cut"
    appends = [store.append(log, *values) for values in ((b"f", b"g"), (b"h",), (b"i",))]
    store.settle()
    store.advance_without_syncing(1000)
    assert log.active.copied == log.active.size
    assert all(append.acknowledged for append in appends)
    if torn >= 0:  # a loss of power keeps some of the pages that were not synced
        store.files.corrupt(log.active.path + ".log", _start(store, log, 1 + torn) + 70)
    for _ in range(2):
        store.kill()
        log = store.log()
        assert store.findings == []
        assert store.values(log) == [b"a", b"f", b"g", b"h", b"i"]


def test_a_cut_within_a_batch_is_made_again_where_it_was_made_though_its_start_was_moved_before() -> None:
    store = StoreOnDoubles()
    store.append(store.log(), b"a", b"b", b"c", b"d")
    store.append(store.log(), b"e")
    store.restart()
    log = store.log()
    _cut(store, log, 4)
    moved: list[DuramenError | None] = []
    store.store.delete_before(log, 2, moved.append)
    store.settle()
    assert moved == [None]
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 2, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    for values in ((b"f", b"g"), (b"h", b"i")):
        store.append(log, *values)
    store.settle()
    store.advance_without_syncing(1000)
    store.files.corrupt(log.active.path + ".log", _start(store, log, 1) + 16)
    for _ in range(2):
        store.kill()
        log = store.log()
        assert store.findings == []
        assert (log.start_offset, store.values(log)) == (0, [b"f", b"g", b"h", b"i"])


def test_a_log_is_never_longer_after_a_cut() -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    answers: list[DuramenError | None] = []
    for end_offset in (2, 4):
        store.store.truncate(log, end_offset, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None, None]
    store.append(log, b"f")
    store.settle()
    for _ in range(2):
        assert store.values(store.log()) == [b"a", b"b", b"f"]
        store.crash()


@pytest.mark.parametrize("older", [False, True])
def test_durability_os_a_cut_is_not_made_again_over_what_was_appended_since(older: bool) -> None:
    store = StoreOnDoubles()
    store.log(0, LogConfig(durability="os"))
    log = _filled(store)
    _cut(store, log, 3)
    appends = [store.append(log, value) for value in (b"f", b"g")]
    store.settle()
    assert all(append.acknowledged for append in appends)
    if older:
        newest = max(path for path in store.files.paths() if path.startswith("checkpoint-"))
        store.files.corrupt(newest, 30)
    for _ in range(2):
        store.kill()
        assert store.values(store.log()) == [b"a", b"b", b"c", b"f", b"g"]


def test_durability_os_what_a_cut_has_taken_that_was_broken_off_does_not_come_back() -> None:
    store = StoreOnDoubles()
    log = store.log(0, LogConfig(durability="os", flush_messages=1))
    store.append(log, b"a")
    store.settle()

    def interfere(call: str, path: str, size: int) -> int:
        if (call, path) == ("sync_directory", log.directory):
            raise Crashed(path)
        return size

    store.files.interfere = interfere
    store.store.truncate(log, 0, store.store.node_epoch, lambda _: None)
    with pytest.raises(Crashed):
        store.settle()
    store.files.interfere = None
    store.kill()
    assert store.log().end_offset == 0
    store.crash()
    assert store.log().end_offset == 0


def test_durability_os_nothing_is_written_after_a_cut_that_failed_half_way() -> None:
    store = StoreOnDoubles()
    store.log(0, LogConfig(durability="os"))
    log = _filled(store)

    def failing(call: str, path: str, size: int) -> int:
        if call == "truncate" and path.startswith(log.directory):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    store.files.interfere = failing
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 3, store.store.node_epoch, answers.append)
    refused = store.append(log, b"f")
    store.settle()
    store.files.interfere = None
    assert isinstance(answers[0], StorageFailed)
    assert isinstance(refused.error, StorageFailed)
    store.kill()
    store.append(store.log(), b"g")
    store.settle()
    store.kill()
    assert store.values(store.log()) == [b"a", b"b", b"c", b"g"]


def test_durability_os_a_cut_takes_back_a_start_that_lay_within_a_batch() -> None:
    store = StoreOnDoubles()
    log = store.log(0, LogConfig(durability="os"))
    for values in ((b"a", b"b"), (b"c", b"d", b"e", b"f")):
        store.append(log, *values)
    store.settle()
    store.restart()
    log = store.log()
    answers: list[DuramenError | None] = []
    store.store.delete_before(log, 4, answers.append)
    store.settle()
    store.store.truncate(log, 4, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None, None]
    for _ in range(2):
        assert (store.log().start_offset, store.log().end_offset) == (2, 2)
        store.kill()


def test_durability_os_a_log_that_was_cut_goes_on_once_a_checkpoint_says_so() -> None:
    store = StoreOnDoubles()
    store.log(0, LogConfig(durability="os"))
    log = _filled(store)
    _cut(store, log, 3)

    def full(_: str, path: str, size: int) -> int:
        if path == "checkpoint.new":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    store.files.interfere = full
    refused = store.append(log, b"f")
    store.settle()
    assert isinstance(refused.error, StorageFull)
    store.files.interfere = None
    store.append(log, b"g")
    store.settle()
    store.kill()
    assert store.values(store.log()) == [b"a", b"b", b"c", b"g"]


def test_a_start_behind_damage_does_not_go_back_with_a_cut() -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    for number in (0, 1):
        store.files.corrupt(log.segments[0].path + ".log", _start(store, log, number) + 16)
    answers: list[DuramenError | None] = []
    store.store.delete_before(log, 1, answers.append)
    store.settle()
    store.store.truncate(log, 1, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None, None]
    for _ in range(2):
        assert store.findings == []
        assert (store.log().start_offset, store.log().end_offset) == (1, 1)
        store.kill()


def test_a_cut_believes_no_batch_of_another_history() -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    path = log.active.path + ".log"
    older = store.files.content(path)
    _cut(store, log, 1)
    for value in (b"f", b"g", b"h", b"i"):
        store.append(log, value)
    store.settle()
    store.restart()
    store.files.replace(path, older)
    answers: list[DuramenError | None] = []
    store.store.truncate(store.log(), 3, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    for _ in range(2):
        assert store.values(store.log()) == [b"a"]
        store.kill()


def test_a_copy_from_before_a_cut_does_not_say_which_offsets_are_lost() -> None:
    store = StoreOnDoubles()
    for values in ((b"a", b"b"), (b"c", b"d", b"e", b"f")):
        store.append(store.log(), *values)
    store.settle()
    store.restart()
    log = store.log()
    path = log.active.path + ".log"
    older = store.files.content(path)
    _cut(store, log, 2)
    for value in (b"g" * 200, b"h" * 200):
        store.append(log, value)
    store.settle()
    store.advance(61_000)  # a checkpoint
    assert log.active.copied == len(store.files.content(path)) > len(older)
    for value in (b"i", b"j"):
        store.append(log, value)
    store.settle()
    store.files.replace(path, older)
    store.kill()
    assert any(path in finding and "the rest is damaged" in finding for finding in store.findings)
    log = store.log()
    assert [(one.first_offset, one.last_offset) for one in log.segments[0].damage] == [(2, 3)]
    assert store.values(log, 4) == [b"i", b"j"]
    for offset in (2, 3):
        with pytest.raises(LogDamaged):
            store.read(log, offset)


def test_what_comes_after_a_cut_waits_for_it_though_the_log_was_held_when_it_was_asked_for() -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 4, store.store.node_epoch, answers.append)  # holds the log until it is cut
    before = store.append(log, b"f")
    store.store.truncate(log, 2, store.store.node_epoch, answers.append)
    after = store.append(log, b"g", producer=(7, 0, 0))
    store.settle()
    store.advance(1000)
    assert answers == [None, None]
    assert (before.base_offset, after.base_offset) == (4, 2)
    for _ in range(2):
        assert store.values(store.log()) == [b"a", b"b", b"g"]
        store.crash()
    following = store.append(store.log(), b"h", producer=(7, 0, 1))
    store.settle()
    assert following.acknowledged


def test_a_cut_whose_turn_never_comes_says_so() -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    answers: list[DuramenError | None] = []
    store.store.truncate(log, 4, store.store.node_epoch, answers.append)
    store.store.truncate(log, 2, store.store.node_epoch, answers.append)
    store.store.delete(log)
    store.settle()
    assert isinstance(answers[0], StreamNotFound)


def test_a_cut_that_a_stop_comes_before_is_not_made() -> None:
    store = StoreOnDoubles()
    log = _filled(store)
    first: list[DuramenError | None] = []
    second: list[DuramenError | None] = []
    store.store.truncate(log, 4, store.store.node_epoch, first.append)
    store.store.truncate(log, 2, store.store.node_epoch, second.append)
    assert store.stop() is None
    assert first == [None]
    assert isinstance(second[0], NodeStopping)
    store.boot()
    assert store.values(store.log()) == [b"a", b"b", b"c", b"d"]
