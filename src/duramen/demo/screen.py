"""The demo's display: steps, lines, progress bars and tables. Writes to the terminal only."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["Bars", "Screen", "plain_table"]


class Bars:
    """Progress bars, one below the other."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def add(self, name: str, total: int) -> None:
        """A bar of that name, at 0."""
        self._tasks[name] = self._progress.add_task(name, total=total)

    def show(self, name: str, done: int) -> None:
        """How far it is."""
        self._progress.update(self._tasks[name], completed=done)


class Screen:
    """The terminal, or whatever the output goes to; Spark's redirection of the standard streams does not reach it."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="replace")
        self.console = Console(file=self._file, highlight=False)
        self._step = 0

    def title(self, text: str) -> None:
        """The first line."""
        self.console.print(f"\n[bold]{text}[/bold]")

    def step(self, text: str) -> None:
        """The next step begins."""
        self._step += 1
        self.console.print(f"\n[bold cyan]{self._step}[/bold cyan]  [bold]{text}[/bold]")

    def say(self, text: str) -> None:
        """One line of a step."""
        self.console.print(f"   {text}", soft_wrap=True, markup=False)

    def show(self, table: Table) -> None:
        """A table of a step."""
        self.console.print(Padding(table, (0, 0, 0, 3), expand=False))

    @contextlib.contextmanager
    def bars(self) -> Iterator[Bars]:
        """Progress bars for the time of the block; where it is no terminal, only their end is shown."""
        with Progress(
            TextColumn("  {task.description:<13}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>9,.0f} of {task.total:,.0f}"),
            TimeElapsedColumn(),
            console=self.console,
        ) as progress:
            yield Bars(progress)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A sign of life while something takes its time."""
        with self.console.status(f"  {text}"):
            yield

    def close(self) -> None:
        """Flush."""
        with contextlib.suppress(BrokenPipeError):
            self._file.close()


def plain_table(columns: Sequence[tuple[str, bool]]) -> Table:
    """A table without lines; for each column its heading and whether it holds numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, numbers in columns:
        table.add_column(heading, justify="right" if numbers else "left", no_wrap=True)
    return table
