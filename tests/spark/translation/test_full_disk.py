"""A disk that is full in the middle: a small one of its own, where this process may mount one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.translation.world import World

from duramen.base.errors import TableStorageFailed

_SIZE_BYTES = 4 << 20
_PAGE_BYTES = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system of 4 MiB."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.getuid() or not mount or not umount:
        pytest.skip("only root may mount a small disk")
    directory = tmp_path / "disk"
    directory.mkdir()
    small = [mount, "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "none", str(directory)]
    if subprocess.run(small, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        yield directory
    finally:
        subprocess.run([umount, str(directory)], check=True)


def leave(disk: Path, free_bytes: int) -> None:
    """Fill the disk but for so much."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    there = os.statvfs(disk)
    ballast.write_bytes(bytes(max(0, there.f_bavail * there.f_frsize - free_bytes)))


def test_wherever_it_is_full_nothing_is_lost_and_the_job_goes_on_when_there_is_room(world: World, disk: Path) -> None:
    world.location = disk / "table"
    world.produce([b'{"a": %d}' % number if number % 5 else b"bad" for number in range(50)])
    world.to_the_end()
    before = [(row["_stream_partition"], row["_offset"]) for row in world.rows()]
    world.produce([b'{"b": "%s"}' % os.urandom(200).hex().encode() for _ in range(100)] + [b"worse"])
    said = set()
    free_bytes = 0
    while True:  # each time with a page more, so that it is full in the data, in the dead letters, in each commit
        leave(disk, free_bytes)
        try:
            world.to_the_end()
        except TableStorageFailed as failed:
            said.add(str(failed))
            assert [(row["_stream_partition"], row["_offset"]) for row in world.rows()] == before
        else:
            break
        free_bytes += _PAGE_BYTES
    assert free_bytes > 5 * _PAGE_BYTES
    assert all(one.startswith(str(disk)) and one.endswith("no space left on the device") for one in said), said
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()
    dead = [(row["_stream_partition"], row["_offset"]) for row in world.rows(dead=True)]
    assert dead == [one[:2] for one in world.expected() if one[2] in (b"bad", b"worse")]
