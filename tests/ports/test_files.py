"""The conformance suite of the FileSystem port: the real file system and the one in memory behave alike."""

import errno
import fcntl
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from duramen.base.ports import FileSystem
from duramen.host import files as host_files
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.io import write_all

F_FULLFSYNC = 51
LINUX_ONLY = ("RWF_NOWAIT", "fdatasync", "posix_fadvise", "posix_fallocate")


class Mac:
    """What macOS has and has not, on this machine. `syncs` are the descriptors' files that were synced wholly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs: list[str] = []
        self.refused = 0
        self._fcntl = fcntl.fcntl
        for name in LINUX_ONLY:
            monkeypatch.delattr(os, name, raising=False)
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", self.fcntl)
        assert host_files.__spec__ is not None
        assert host_files.__spec__.origin is not None
        spec = importlib.util.spec_from_file_location("files_on_a_mac", host_files.__spec__.origin)
        assert spec is not None
        assert spec.loader is not None
        self.module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def fcntl(self, fd: int, command: int, argument: int = 0) -> int:
        if command != F_FULLFSYNC:
            return self._fcntl(fd, command, argument)
        if self.refused:
            raise OSError(self.refused, os.strerror(self.refused))
        self.syncs.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        return 0


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Mac:
    return Mac(monkeypatch)


@pytest.fixture(params=["linux", "mac", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    root = str(tmp_path / "root")
    system: FileSystem
    if request.param == "memory":
        system = MemoryFileSystem()
    elif request.param == "linux":
        system = host_files.HostFileSystem(root)
    else:
        system = request.getfixturevalue("mac").module.HostFileSystem(root)
    system.make_directory("")
    return system


def test_opening_what_is_absent_says_so(files: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("nothing")
    with pytest.raises(FileNotFoundError):
        files.open("no/such/directory", create=True)
    assert not files.exists("nothing")


def test_writes_are_read_back_at_their_positions(files: FileSystem) -> None:
    file = files.open("data", create=True)
    assert file.write([b"hello ", b"world"], 0) == 11
    assert file.write([memoryview(b"W")], 6) == 1
    assert bytes(file.read(0, 100)) == b"hello World"
    assert bytes(file.read(6, 3)) == b"Wor"
    assert bytes(file.read(11, 3)) == b""
    assert file.size() == 11


def test_a_write_beyond_the_end_leaves_zeros(files: FileSystem) -> None:
    file = files.open("data", create=True)
    file.write([b"x"], 5)
    assert bytes(file.read(0, 6)) == b"\0\0\0\0\0x"


def test_many_buffers_go_out_in_order_even_if_it_takes_several_calls(files: FileSystem) -> None:
    buffers = [bytes([number % 251]) * 1000 for number in range(2500)]
    write_all(files.open("data", create=True), buffers, 3)
    assert bytes(files.open("data").read(3, 2_500_000)) == b"".join(buffers)


def test_what_was_just_written_is_cached_or_said_not_to_be(files: FileSystem) -> None:
    file = files.open("data", create=True)
    file.write([b"abc"], 0)
    assert file.read_cached(0, 3) in (b"abc", None)
    assert file.read_cached(0, 4) is None


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system cannot be told how a file is read")
def test_the_system_reads_no_further_than_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it reads ahead as far as the disk's settings say, and syncs wait behind that."""
    said: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, _position, _size, advice: said.append(advice))
    file = host_files.HostFileSystem(str(tmp_path)).open("data", create=True)
    file.write([b"abc"], 0)
    file.read_cached(0, 3)
    file.read_cached(0, 3)
    file.read_ahead(0, 3)
    assert said == [os.POSIX_FADV_RANDOM, os.POSIX_FADV_WILLNEED]


def test_what_is_on_its_way_to_the_disk_is_read_as_before(files: FileSystem) -> None:
    file = files.open("data", create=True)
    content = b"0123456789abcdef" * 4096
    write_all(file, [content], 0)
    file.write_back(0, len(content))
    assert bytes(file.read(0, len(content))) == content
    file.sync()
    assert bytes(file.read(0, len(content))) == content


def test_what_memory_may_forget_is_read_as_before(files: FileSystem) -> None:
    file = files.open("data", create=True)
    content = b"0123456789abcdef" * 4096
    write_all(file, [content], 0)
    file.forget(0, len(content))  # on its way to the disk
    assert bytes(file.read(0, len(content))) == content
    file.sync()
    file.forget(4096, 8192)
    file.forget(len(content), 1 << 20)  # beyond the end
    assert bytes(file.read(0, len(content))) == content


def test_an_open_file_is_in_place_until_it_is_removed(files: FileSystem) -> None:
    files.make_directory("wal")
    file = files.open("wal/data", create=True)
    assert files.in_place("wal/data")
    files.rename("wal/data", "wal/moved")
    assert not files.in_place("wal/data")
    assert files.in_place("wal/moved")
    files.unlink("wal/moved")
    assert not files.in_place("wal/moved")
    file.close()


def test_truncate_cuts_and_extends(files: FileSystem) -> None:
    file = files.open("data", create=True)
    file.write([b"abcdef"], 0)
    file.truncate(2)
    file.truncate(4)
    assert bytes(file.read(0, 10)) == b"ab\0\0"


def test_allocate_gives_room_and_keeps_content(files: FileSystem) -> None:
    file = files.open("data", create=True)
    file.write([b"abc"], 0)
    file.allocate(10_000)
    assert file.size() == 10_000
    assert bytes(file.read(0, 4)) == b"abc\0"
    file.allocate(100)
    assert file.size() == 10_000


def test_names_directories_and_renames(files: FileSystem) -> None:
    files.make_directory("a/b")
    files.make_directory("a/b")
    files.open("a/b/one", create=True).sync()
    files.open("a/two", create=True).sync()
    files.sync_directory("a/b")
    assert files.names("a") == ["b", "two"]
    assert files.names("") == ["a"]
    files.rename("a/two", "a/b/one")
    assert files.names("a/b") == ["one"]
    assert files.exists("a/b")
    with pytest.raises(FileNotFoundError):
        files.names("a/nothing")


def test_removing_what_is_absent_is_nothing(files: FileSystem) -> None:
    files.unlink("nothing")
    files.remove_directory("nothing")


def test_an_open_file_outlives_its_name(files: FileSystem) -> None:
    files.make_directory("logs/1")
    file = files.open("logs/1/segment", create=True)
    file.write([b"still here"], 0)
    files.remove_directory("logs/1")
    assert not files.exists("logs/1/segment")
    assert not files.exists("logs/1")
    assert bytes(file.read(0, 10)) == b"still here"


def test_a_read_only_file_is_not_written(files: FileSystem) -> None:
    files.open("data", create=True).write([b"abc"], 0)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        files.open("data", read_only=True).write([b"x"], 0)


def test_a_lock_is_held_once(files: FileSystem) -> None:
    lock = files.lock("lock")
    assert lock is not None
    assert files.lock("lock") is None
    lock.release()
    again = files.lock("lock")
    assert again is not None
    again.release()


class TestMac:
    def test_syncs_go_through_the_cache_of_the_drive(self, mac: Mac, tmp_path: Path) -> None:
        system = mac.module.HostFileSystem(str(tmp_path))
        file = system.open("data", create=True)
        file.write([b"abc"], 0)
        file.sync()
        system.sync_directory("")
        assert mac.syncs == ["data", tmp_path.name]

    def test_a_file_system_without_it_is_synced_as_it_can_be(
        self, mac: Mac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        file = mac.module.HostFileSystem(str(tmp_path)).open("data", create=True)
        mac.refused = errno.ENOTSUP
        file.sync()
        assert len(synced) == 1
        mac.refused = errno.EIO
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.sync()
        assert len(synced) == 1
