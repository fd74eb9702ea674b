"""A table of keys in files: beside one in memory, and rounds that fail anywhere or end with the process."""

import errno
from collections.abc import Callable
from random import Random

import pytest
from tests.keyed.model import KERNELS, SECRET, WEAK

from duramen.base.errors import CheckpointInvalid
from duramen.broker.views.files import ViewFiles
from duramen.codec.batch import BatchInput, encode
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.kernel import Kernel
from duramen.keyed.plain import PLAIN
from duramen.keyed.view import KeyedView
from duramen.sim.machine.disk import MemoryFileSystem

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: one.name)
LOG = LogPositions(b"i" * 16, 0, 0, 1 << 40, lambda _: 4)
DIRECTORY = "keyed/view"


def batch(offset: int, *keys: int | None) -> bytes:
    new = [BatchInput(1, None if key is None else key.to_bytes(2, "big"), b"v") for key in keys]
    return bytes(encode(new, base_offset=offset))


def log_of(chance: Random, records: int, keys: int) -> list[bytes]:
    batches, offset = list[bytes](), 0
    while offset < records:
        count = chance.choice((1, 2, 7, 30))
        some = [None if chance.random() < 0.05 else chance.randrange(keys) for _ in range(count)]
        batches.append(batch(offset, *some))
        offset += count
    return batches


def end_round(view: KeyedView) -> None:
    while view.step():
        pass
    view.end_round()


def shown(view: KeyedView) -> object:
    at, s0 = view.position, view.s0
    return at, view.keys, view.snapshot(at, 0, at), view.snapshot((s0 + at) // 2, 0, at), view.changes(s0, at).offsets()


@kernels
def test_a_table_in_files_is_the_one_in_memory(kernel: Kernel) -> None:
    """It grows in rounds, keys go and come back, and it is taken into memory again."""
    chance = Random(7)
    one = KeyedView(kernel, 0, SECRET, page_records=64)
    other = KeyedView(kernel, 0, SECRET, page_records=64)
    other.file_table()
    for number, data in enumerate(log_of(chance, 1500, 400)):
        one.apply(data)
        other.apply(data)
        if chance.random() < 0.1:
            end_round(other)
            assert shown(other) == shown(one)
        if number == 60:
            end_round(other)
            low = bytearray(b"\xff" * 20)
            one.forget(low, 0)
            other.forget(low, 0)
            other.step()  # what is forgotten while a round goes on is in the next one
            other.forget(bytes(low), 160)
            one.forget(bytes(low), 160)
            end_round(other)
    end_round(other)
    end_round(other)
    assert shown(other) == shown(one)
    other.unfile_table()
    more = batch(one.position, *range(450))
    one.apply(more)
    other.apply(more)
    assert shown(other) == shown(one)


def filled(files: MemoryFileSystem, batches: list[bytes]) -> tuple[KeyedView, ViewFiles]:
    """A view whose table is in files, with a checkpoint."""
    place = ViewFiles(files, DIRECTORY, 64)
    view = place.load(PLAIN, LOG, SECRET, anew=False).view
    if view.filed is None:
        view.file_table()
    for data in batches:
        view.apply(data)
    end_round(view)
    place.save(view, LOG)
    return view, place


def right_view(batches: list[bytes]) -> KeyedView:
    view = KeyedView(PLAIN, 0, SECRET, page_records=64)
    for data in batches:
        view.apply(data)
    return view


def calls(work: Callable[[MemoryFileSystem], None], files: MemoryFileSystem) -> int:
    """How many calls of the files the work takes."""
    made = 0

    def count(call: str, path: str, size: int) -> int:
        nonlocal made
        del call, path
        made += 1
        return size

    files.interfere = count
    work(files)
    files.interfere = None
    return made


class _Ended(Exception):
    """The process."""


def a_round(batches: list[bytes]) -> Callable[[MemoryFileSystem], None]:
    def work(files: MemoryFileSystem) -> None:
        filled(files, batches)

    return work


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_at_any_call_of_a_round_leaves_the_one_before_or_this_one(every: int) -> None:
    before, after = log_of(Random(3), 400, 90), list[bytes]()
    for data in log_of(Random(4), 200, 120):
        after.append(data)
    start = right_view(before).position
    after = [batch(start + at, at % 120, at % 7) for at in range(0, 200, 2)]
    probe = MemoryFileSystem()
    filled(probe, before)
    most = calls(a_round(after), probe)
    assert most > 100
    positions = set()
    for end in range(1, most + 1, every):
        files = MemoryFileSystem()
        filled(files, before)
        left = [end]

        def interfere(call: str, path: str, size: int, left: list[int] = left) -> int:
            del call, path
            left[0] -= 1
            if left[0] <= 0:
                raise _Ended
            return size

        files.interfere = interfere
        with pytest.raises(_Ended):
            filled(files, after)
        files.interfere = None
        files.crash(Random(end))
        found = ViewFiles(files, DIRECTORY, 64).load(PLAIN, LOG, SECRET, anew=False)
        assert found.wrong == []
        view = found.view
        positions.add(view.position)
        for data in (*before, *after):
            view.apply(data)
        end_round(view)
        assert shown(view) == shown(right_view([*before, *after]))
    assert start in positions


def test_a_round_that_fails_goes_on_with_the_partition_at_which_it_failed() -> None:
    chance = Random(11)
    before = log_of(chance, 300, 200)
    files = MemoryFileSystem()
    view, place = filled(files, before)
    start = view.position
    after = [batch(start + at, at % 200, (at * 7) % 300) for at in range(0, 200, 2)]
    for data in after:
        view.apply(data)
    fails = [True]

    def interfere(call: str, path: str, size: int) -> int:
        if call in ("write", "sync") and "table-" in path and chance.random() < 0.2 and fails:
            raise OSError(errno.ENOSPC, "full")
        return size

    files.interfere = interfere
    failed = 0
    while True:
        try:
            if not view.step():
                break
        except OSError:
            failed += 1
            place.save(view, LOG)  # what is on the disk is that of the round before
    fails.clear()
    assert failed > 5
    assert ViewFiles(files, DIRECTORY, 64).load(PLAIN, LOG, SECRET, anew=False).view.position == start
    view.end_round()
    assert shown(view) == shown(right_view([*before, *after]))


def test_the_files_are_those_that_the_checkpoint_names() -> None:
    files = MemoryFileSystem()
    for at in range(3):
        filled(files, [batch(10 * at, *range(10 * at, 10 * at + 10))])
        names = [name for name in files.names(DIRECTORY) if name.startswith("table-")]
        assert len(names) == 64
    view = ViewFiles(files, DIRECTORY, 64).load(PLAIN, LOG, SECRET, anew=False).view
    view.unfile_table()
    place = ViewFiles(files, DIRECTORY, 64)
    place.load(PLAIN, LOG, SECRET, anew=False)
    place.save(view, LOG)
    assert not [name for name in files.names(DIRECTORY) if name.startswith("table-")]
    assert ViewFiles(files, DIRECTORY, 64).load(PLAIN, LOG, SECRET, anew=False).view.keys == 30


@pytest.mark.parametrize("kind", ["damaged", "short", "gone"])
def test_a_damaged_file_is_found_before_anything_is_entered(kind: str) -> None:
    files = MemoryFileSystem()
    view, _ = filled(files, [batch(0, *range(50))])
    name = next(name for name in files.names(DIRECTORY) if name.startswith("table-"))
    path = f"{DIRECTORY}/{name}"
    if kind == "damaged":
        files.open(path).write([b"\x01"], 17)
    elif kind == "short":
        files.open(path).truncate(20)
    else:
        files.unlink(path)
    view.apply(batch(50, *range(50)))
    with pytest.raises(CheckpointInvalid, match=r"of a view's table"):
        end_round(view)
    if kind == "gone":
        assert "is gone" in "".join(ViewFiles(files, DIRECTORY, 64).load(PLAIN, LOG, SECRET, anew=False).wrong)


def test_keys_that_collide_are_kept_apart_by_what_is_left_of_their_hash() -> None:
    view = KeyedView(WEAK, 0, SECRET, page_records=16)
    view.file_table()
    for at in range(0, 300, 3):
        view.apply(batch(at, at, at + 1, at % 30))
        if at % 30 == 0:
            end_round(view)
    end_round(view)
    one = KeyedView(WEAK, 0, SECRET, page_records=16)
    for at in range(0, 300, 3):
        one.apply(batch(at, at, at + 1, at % 30))
    assert shown(view) == shown(one)
