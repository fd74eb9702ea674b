"""A watch reports whatever takes a file away from its path, before requests that were sent after it."""

import asyncio
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from duramen.host.files import HostFileSystem
from duramen.host.watch import PathWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")

NAME = "one/data/wal/000000.wal"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


DONE: dict[str, Callable[[Path], None]] = {
    "the file is deleted": lambda root: (root / NAME).unlink(),
    "the file is moved": lambda root: move(root / NAME),
    "its directory is moved": lambda root: move(root / "one/data/wal"),
    "the data directory is moved": lambda root: move(root / "one/data"),
    "the data directory is deleted": lambda root: shutil.rmtree(root / "one/data"),
    "a directory above is moved": lambda root: move(root / "one"),
    "another file is deleted": lambda root: (root / NAME).with_name("000001.wal").unlink(),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("000000.wal", "000001.wal"):
        path = tmp_path / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(name).touch()
    return tmp_path


async def noticed(root: Path, done: Callable[[Path], None]) -> bool:
    """Whether the file is in place when a message arrives that was sent after `done`."""
    loop = asyncio.get_running_loop()
    files = HostFileSystem(str(root / "one/data"))
    watch = PathWatch(loop, str(root / "one/data/wal"))
    files.rely_on(watch.quiet)
    here, there = socket.socketpair()
    arrived: asyncio.Future[bool] = loop.create_future()

    def answer() -> None:
        here.recv(100)
        arrived.set_result(files.in_place("wal/000000.wal"))

    loop.add_reader(here, answer)
    try:
        assert files.in_place("wal/000000.wal")
        assert watch.quiet()
        done(root)
        there.send(b"a request")
        return await arrived
    finally:
        loop.remove_reader(here)
        watch.close()
        here.close()
        there.close()


@pytest.mark.parametrize("made", LOOPS)
@pytest.mark.parametrize("done", DONE)
def test_what_is_done_is_noticed_before_later_requests(root: Path, made: str, done: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[made]) as runner:
        assert runner.run(noticed(root, DONE[done])) == (done == "another file is deleted")


def test_a_directory_that_is_not_there_has_no_watch(tmp_path: Path) -> None:
    with asyncio.Runner() as runner, pytest.raises(FileNotFoundError):
        PathWatch(runner.get_loop(), str(tmp_path / "nowhere"))
