"""The load generator's process, and the progress bar of its parent.

The load has its own process, so that the bar and the rest of the command do not disturb its clock.
"""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from duramen.base.errors import ServerUnreachable

__all__ = ["LoadWorker", "end_at_once"]

T = TypeVar("T")
P = ParamSpec("P")


class LoadWorker:
    """Runs one job after another; each is a step of the bar, which counts to `steps`."""

    def __init__(self, console: Console, steps: int) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_at_once)
        self._progress = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f}"), BarColumn(), TimeElapsedColumn(),
            TextColumn("{task.description}"), console=console, transient=True, refresh_per_second=2,
        )  # fmt: skip
        self._task = self._progress.add_task("starting", total=steps)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._pool.shutdown(cancel_futures=True)

    def say(self, what: str) -> None:
        """Show what is being done now."""
        self._progress.update(self._task, description=what)

    def step(self) -> None:
        """One of the steps is done."""
        self._progress.advance(self._task)

    def run(self, what: str, job: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run `job` in the other process; it counts as a step. Raises what the job raises."""
        self.say(what)
        try:
            found = self._pool.submit(job, *args, **options).result()
        except BrokenProcessPool:
            raise ServerUnreachable(f"the process that makes the load has died: {what}") from None
        self.step()
        return found


def end_at_once() -> None:
    """Have Ctrl-C end this process at once and without a word: the command that waits for it speaks."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
