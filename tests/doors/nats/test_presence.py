"""The moment until which a node listened, through restarts and trouble."""

import errno
import os

import pytest

from duramen.doors.nats.presence import Presence
from duramen.sim.machine.disk import MemoryFileSystem


def test_what_was_written_last_is_read_by_the_next_run() -> None:
    files = MemoryFileSystem()
    presence = Presence(files)
    assert presence.read() == 0
    for moment_ms in (5, 1_700_000_000_000, 7):
        presence.write(moment_ms)
        assert presence.read() == Presence(files).read() == moment_ms


@pytest.mark.parametrize("content", [b"", b"123", b"x" * 20])
def test_what_cannot_be_read_is_no_moment(content: bytes) -> None:
    files = MemoryFileSystem()
    files.make_directory("nats")
    files.open("nats/listened-until", create=True).write([content], 0)
    assert Presence(files).read() == 0


def test_a_full_disk_ends_no_start() -> None:
    files = MemoryFileSystem()

    def fail(call: str, _: str, size: int) -> int:
        if call == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    files.interfere = fail
    presence = Presence(files)
    assert presence.read() == 0
    with pytest.raises(OSError, match="No space left"):
        presence.write(5)
