"""The demo's directory: its layout, and a guard that no other directory is ever replaced."""

import fcntl
import shutil
from pathlib import Path
from typing import Final

from duramen.base.errors import DirectoryUnusable

__all__ = ["DemoDirectory"]

_MARK: Final = ".duramen-demo"
_MARK_TEXT: Final = "Everything here was made by `make demo`, and is replaced by the next one.\n"


class DemoDirectory:
    """A fresh directory at `path`. Raises DirectoryUnusable for what is not an earlier demo's, or is still in use."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.node = self.path / "node"
        self.table = self.path / "table"
        self.checkpoint = self.path / "checkpoint"
        self.chart = self.path / "delays.png"
        self.page = self.path / "delays.html"
        self.consumers_log = self.path / "consumers.log"
        self.spark_log = self.path / "spark.log"
        self.scratch = self.path / "scratch"
        self.nodes = self.path / "nodes"
        self.timeline = self.path / "timeline.png"
        self.timeline_page = self.path / "timeline.html"
        self._make()

    def _make(self) -> None:
        try:
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                self._check_ours()
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / _MARK).write_text(_MARK_TEXT)
        except OSError as error:
            raise DirectoryUnusable(f"{self.path} cannot be used: {error.strerror or error}") from None

    def _check_ours(self) -> None:
        if not (self.path / _MARK).is_file():
            raise DirectoryUnusable(
                f"{self.path} is there and was not made by the demo; name another with --directory, or move it away"
            )
        for lock in (self.node / "lock", *self.nodes.glob("*/lock")):
            if lock.exists():
                _check_free(lock)

    def shown(self, path: Path) -> str:
        """A path in here as it is shown to people: beginning with the directory's own name where it lies near."""
        try:
            return str(path.relative_to(Path.cwd()))
        except ValueError:
            return str(path)

    def bytes_of(self, path: Path) -> int:
        """What the files below `path` take on the disk."""
        return sum(512 * file.stat().st_blocks for file in path.rglob("*") if file.is_file())


def _check_free(lock: Path) -> None:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryUnusable(
                f"the node of an earlier demo still runs in {lock.parent}; stop it first, or name another directory"
                " with --directory"
            ) from None
