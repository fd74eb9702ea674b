"""What the system says of a process and of files."""

import os
import sys
from pathlib import Path

import pytest

from duramen.bench.system import cached_bytes, drop_cached, use, written_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is read from /proc")


def test_a_process_says_what_it_holds() -> None:
    before = use(os.getpid())
    with Path(os.devnull).open() as one, Path(os.devnull).open() as other:
        assert use(os.getpid()).descriptors == before.descriptors + 2
        assert one.fileno() != other.fileno()
    assert before.resident_mib > 1


def test_bytes_written_count_and_memory_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "data"
    before = written_bytes(os.getpid())
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    assert written_bytes(os.getpid()) - before in (0, *range(1 << 20, 1 << 21))  # 0: some file systems do not count
    drop_cached(path)
    dropped = cached_bytes(path)
    path.read_bytes()
    assert dropped <= cached_bytes(path) == 1 << 20
    (tmp_path / "empty").touch()
    assert cached_bytes(tmp_path / "empty") == 0
