"""A plain file copy in a process of its own at low priority: the unavoidable cost of such a copy."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Final, Self

from duramen.base.units import MIB
from duramen.bench.load.worker import end_at_once
from duramen.bench.system import leave_processor

__all__ = ["PlainCopy"]

_PIECE_BYTES: Final = MIB


class PlainCopy:
    """Copies files into others of the same disk, MiB by MiB, each synced, and throws them away."""

    def __init__(self, files: Sequence[Path], directory: Path, bytes_per_s: float) -> None:
        """At most so many bytes a second are copied; the copies lie in `directory`."""
        self._arguments = (list(files), directory, bytes_per_s)
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_at_once)
        self._copied: Future[float]

    def __enter__(self) -> Self:
        self._copied = self._pool.submit(_copy, *self._arguments)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    @property
    def running(self) -> bool:
        """Whether there is more to copy."""
        return not self._copied.done()

    @property
    def seconds(self) -> float:
        """How long it took, once it does not run any more. Raises OSError."""
        return self._copied.result()


def _copy(files: Sequence[Path], directory: Path, bytes_per_s: float) -> float:
    leave_processor(0)
    began_s, copied_bytes = time.monotonic(), 0
    for path in files:
        with path.open("rb", buffering=0) as source, tempfile.TemporaryFile(dir=directory, buffering=0) as target:
            while piece := source.read(_PIECE_BYTES):
                target.write(piece)
                os.fdatasync(target.fileno())
                copied_bytes += len(piece)
                time.sleep(max(0.0, began_s + copied_bytes / bytes_per_s - time.monotonic()))
    return time.monotonic() - began_s
