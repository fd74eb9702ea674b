"""A progress bar on standard error for work longer than two seconds, if that is a terminal."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Bar"]

_AFTER_S: Final = 2.0


class Bar:
    """Progress in the unit of `total`; without a total it moves and shows the time so far."""

    def __init__(self, what: str, total: int | None, *, wanted: bool = True) -> None:
        """Not `wanted`: never to be seen."""
        self._what = what
        self._total = total
        self._done = 0
        self._begins = time.monotonic() + _AFTER_S if wanted and _is_terminal() else float("inf")
        self._shown: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.hide()

    def expect(self, total: int) -> None:
        """So much it will be in all."""
        self._total = total

    def advance(self, amount: int) -> None:
        """So much more is done."""
        self._done += amount
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=self._done)
        elif time.monotonic() >= self._begins:
            self._shown = self._show()

    def hide(self) -> None:
        """Take it away, for good."""
        self._begins = float("inf")
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def _show(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        shown = Progress(*columns, console=Console(stderr=True), transient=True)
        shown.add_task(self._what, total=self._total, completed=self._done)
        shown.start()
        return shown


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
