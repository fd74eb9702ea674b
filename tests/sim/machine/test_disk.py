"""What the simulated disk keeps over a loss of power."""

import errno
import os
import random
from collections.abc import Callable

import pytest

from duramen.sim.machine.disk import PAGE_BYTES, Crashed, MemoryFileSystem

OLD, NEW = b"o" * PAGE_BYTES, b"n" * PAGE_BYTES


def synced(content: bytes = b"") -> MemoryFileSystem:
    """A disk with a file `d/f` of that content, durable."""
    disk = MemoryFileSystem()
    disk.make_directory("d")
    file = disk.open("d/f", create=True)
    file.write([content], 0)
    file.sync()
    disk.sync_directory("")
    disk.sync_directory("d")
    return disk


def outcomes(prepare: Callable[[], MemoryFileSystem], look: Callable[[MemoryFileSystem], object]) -> set[object]:
    """Everything that a loss of power leaves, over many seeds."""
    found = set()
    for seed in range(1000):
        disk = prepare()
        disk.crash(random.Random(seed))
        found.add(look(disk))
    return found


def test_any_subset_of_unsynced_pages_survives() -> None:
    def prepare() -> MemoryFileSystem:
        disk = synced(OLD * 3)
        for page in (0, 2):
            disk.open("d/f").write([NEW], page * PAGE_BYTES)
        disk.last_write = None
        return disk

    contents = {OLD * 3, NEW + OLD * 2, OLD * 2 + NEW, NEW + OLD + NEW}
    assert outcomes(prepare, lambda disk: disk.content("d/f")) == contents


def test_the_last_write_is_torn_at_any_byte() -> None:
    def prepare() -> MemoryFileSystem:
        disk = synced(b"o" * 100)
        disk.open("d/f").write([b"n" * 20], 40)
        return disk

    found = outcomes(prepare, lambda disk: disk.content("d/f").count(b"n"))
    assert found == set(range(21))


def test_a_file_that_grew_has_its_old_size_the_new_one_or_one_between() -> None:
    def prepare() -> MemoryFileSystem:
        disk = synced(b"o" * 10)
        disk.open("d/f").write([b"n" * 90], 10)
        disk.last_write = None
        return disk

    found = outcomes(prepare, lambda disk: disk.content("d/f"))
    sizes = {len(content) for content in found if isinstance(content, bytes)}
    assert {10, 100} < sizes <= set(range(10, 101))
    assert b"o" * 10 + b"\0" * 90 in found  # the size survived, the bytes did not
    assert b"o" * 10 + b"n" * 90 in found


def test_a_file_that_was_cut_is_cut_or_as_it_was() -> None:
    def prepare() -> MemoryFileSystem:
        disk = synced(b"o" * 100)
        disk.open("d/f").truncate(30)
        return disk

    assert outcomes(prepare, lambda disk: len(disk.content("d/f"))) == {30, 100}


def test_a_rename_survives_as_one_step_or_not_at_all() -> None:
    def prepare() -> MemoryFileSystem:
        disk = synced(b"old")
        file = disk.open("d/f.new", create=True)
        file.write([b"new"], 0)
        file.sync()
        disk.rename("d/f.new", "d/f")
        return disk

    def look(disk: MemoryFileSystem) -> object:
        return disk.content("d/f")

    assert outcomes(prepare, look) == {b"old", b"new"}


def test_what_lies_in_a_directory_is_lost_with_the_directorys_name() -> None:
    def prepare() -> MemoryFileSystem:
        disk = MemoryFileSystem()
        disk.make_directory("d")
        disk.open("d/f", create=True).sync()
        disk.sync_directory("d")
        return disk

    assert outcomes(prepare, lambda disk: tuple(disk.paths())) == {(), ("d/f",)}
    disk = prepare()
    disk.sync_directory("")
    disk.crash()
    assert disk.paths() == ["d/f"]


@pytest.mark.parametrize(("fate", "reads"), [("drop", b"old"), ("forget", b"new"), ("keep", b"new")])
def test_pages_that_a_sync_failed_to_write(fate: str, reads: bytes) -> None:
    disk = synced(b"old")

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            disk.failed_sync = "drop" if fate == "drop" else "forget" if fate == "forget" else "keep"
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    disk.open("d/f").write([b"new"], 0)
    disk.interfere = fail
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.open("d/f").sync()
    disk.interfere = None
    assert disk.open("d/f").read(0, 3) == reads
    disk.open("d/f").sync()
    disk.crash()
    assert disk.content("d/f") == (b"new" if fate == "keep" else b"old")


def test_a_kill_keeps_every_write_and_gives_locks_back() -> None:
    disk = synced(b"old")
    assert disk.lock("lock") is not None
    disk.open("d/f").write([b"new"], 0)
    disk.end_process()
    assert disk.content("d/f") == b"new"
    assert disk.lock("lock") is not None


def test_a_crash_comes_in_the_call_it_is_ordered_for() -> None:
    disk = synced()
    disk.crash_at = disk.calls + 2
    disk.open("d/f").write([b"one"], 0)
    with pytest.raises(Crashed):
        disk.open("d/f").write([b"two"], 3)
    assert disk.content("d/f") == b"onetwo"


def test_a_file_that_another_makes_while_the_call_waits_is_the_same_file() -> None:
    disk = MemoryFileSystem()
    waiting = [True]

    def interfere(call: str, path: str, size: int) -> int:
        if call == "create" and waiting:
            waiting.clear()
            disk.open(path, create=True).write([b"first"], 0)
        if call == "unlink" and not waiting:
            waiting.append(True)
            disk.unlink(path)
        return size

    disk.interfere = interfere
    assert disk.open("file", create=True).read(0, 5) == b"first"
    disk.unlink("file")
    assert disk.paths() == []
