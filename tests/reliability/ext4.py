"""A real ext4 in a file, for tests: it can fail, and what a loss of power would leave of it can be copied."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

__all__ = ["Ext4"]

_BYTES = 96 << 20


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    program = _found(command[0]) or command[0]
    return subprocess.run([program, *command[1:]], capture_output=True, check=False, text=True)


class Ext4:
    """It goes read-only at its first error, as most are mounted."""

    def __init__(self, image: Path, place: Path) -> None:
        """`image` is a file system already."""
        place.mkdir(exist_ok=True)
        self._image = image
        self.place = place

    @classmethod
    def make(cls, directory: Path) -> Self | None:
        """An empty one below `directory`, mounted; None where this process may not."""
        image = directory / "image"
        with image.open("wb") as file:
            file.truncate(_BYTES)
        # Small images of Debian have no e2fsprogs.
        if os.geteuid() != 0 or _found("mkfs.ext4") is None or _run("mkfs.ext4", "-q", str(image)).returncode != 0:
            return None
        system = cls(image, directory / "disk")
        return system if system.mount() else None

    def mount(self) -> bool:
        """Says whether it could be."""
        return _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.place)).returncode == 0

    def unmount(self) -> None:
        """Also where something is open in it."""
        _run("umount", "-l", str(self.place))

    def fail(self) -> None:
        """What an error of the disk does: from now on nothing can be written."""
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        (device,) = (mount[0] for mount in mounts if mount[1] == str(self.place))
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("a test")

    def repair(self) -> None:
        """Unmount, check, mount."""
        self.unmount()
        _run("e2fsck", "-p", str(self._image))
        if not self.mount():
            raise OSError(f"{self._image} cannot be mounted again")

    @contextmanager
    def after_power_loss(self, name: str) -> Iterator[Path]:
        """What a loss of power at this moment leaves, mounted at the path that is given.

        The kernel's unwritten pages are not in the image. Whoever writes into it has to stand still.
        """
        copy = self._image.with_name(name)
        while True:
            # Twice the same: nothing of it was written back in the middle of the copy.
            _run("cp", "--sparse=always", str(self._image), str(copy))
            if _run("cmp", "-s", str(self._image), str(copy)).returncode == 0:
                break
        left = Ext4(copy, copy.with_name(f"{name}-disk"))
        if not left.mount():
            raise OSError(f"{copy} cannot be mounted")
        try:
            yield left.place
        finally:
            left.unmount()
            copy.unlink()
