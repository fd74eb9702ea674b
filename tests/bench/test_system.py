"""What the system says of a process and of files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duramen.bench.system import cached_bytes, drop_cached, use, written_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is read from /proc")


# In a process of its own: nobody else opens or closes anything there.
OPENING = """
import os, sys
for line in sys.stdin:
    held = [open(os.devnull) for _ in range(int(line))]
    print("held", flush=True)
"""


def test_a_process_says_what_it_holds() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPENING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for count in (0, 2):
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "held\n"
            found.append(use(process.pid))
        process.stdin.close()
    before, after = found
    assert after.descriptors == before.descriptors + 2
    assert before.resident_mib > 1


def test_bytes_written_count_and_memory_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "data"
    before = written_bytes(tmp_path)
    path.write_bytes(os.urandom(1 << 20))
    after = written_bytes(tmp_path)
    assert before is None or (after is not None and after - before >= 1 << 20)
    drop_cached(path)
    dropped = cached_bytes(path)
    path.read_bytes()
    assert dropped <= cached_bytes(path) == 1 << 20
    (tmp_path / "empty").touch()
    assert cached_bytes(tmp_path / "empty") == 0
