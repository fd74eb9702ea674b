"""A bar on the terminal for what takes longer than two seconds; nothing where standard error is none."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["progress"]

_LONG_S: Final = 2.0


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Gives a function to call before each of `total` steps; after two seconds a bar shows how many are done."""
    if not sys.stderr.isatty() or not total:
        yield lambda: None
        return
    bar = _Bar(what, total)
    try:
        yield bar.advance
    finally:
        bar.close()


class _Bar:
    """Its timer shows it, in a thread of its own, so that it appears in the middle of a long step too."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._begun = 0
        self._lock = threading.Lock()
        self._closed = False
        self._update: Callable[[int], None] = lambda _: None
        self._stop: Callable[[], None] = lambda: None
        self._timer = threading.Timer(_LONG_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def advance(self) -> None:
        with self._lock:
            self._begun += 1
            self._update(self._begun - 1)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        with self._lock:
            if self._closed:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            shown = Progress(*columns, console=Console(stderr=True), transient=True)
            task = shown.add_task(self._what, total=self._total, completed=max(0, self._begun - 1))
            self._update = lambda done: shown.update(task, completed=done)
            self._stop = shown.stop
            shown.start()
