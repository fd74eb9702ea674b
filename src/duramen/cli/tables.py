"""Text in columns for people and for `awk`: no frames, no colours."""

import shutil
import sys
from collections.abc import Container, Sequence
from typing import Final

__all__ = ["plain", "table", "terminal_width"]

_GAP: Final = 2
_NARROWEST: Final = 8
_MORE: Final = "…"


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none, and nothing has to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def plain(text: str) -> str:
    """`text` without control characters of terminals, which are written as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = (), width: int | None = None
) -> str:
    """Lines with two blanks between columns; those in `right` are set to the right.

    With a `width` the widest of the other columns are shortened until a line fits it, as far as that goes.
    """
    lines = [header, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    if width is not None:
        _fit(widths, width, [column for column in range(len(header)) if column not in right])
    return "\n".join(
        (" " * _GAP)
        .join(_cell(cell, widths[column], right=column in right) for column, cell in enumerate(line))
        .rstrip()
        for line in lines
    )


def _fit(widths: list[int], width: int, elastic: Sequence[int]) -> None:
    while (over := sum(widths) + _GAP * (len(widths) - 1) - width) > 0 and elastic:
        widest = max(elastic, key=lambda column: widths[column])
        if widths[widest] <= _NARROWEST:
            return
        # Down to the second widest at most: two long columns share the missing width.
        others = [widths[column] for column in elastic if column != widest]
        floor = max(_NARROWEST, min(widths[widest] - 1, max(others, default=0)))
        widths[widest] = max(floor, widths[widest] - over)


def _cell(text: str, width: int, *, right: bool) -> str:
    if len(text) > width:
        text = text[: width - 1] + _MORE
    return text.rjust(width) if right else text.ljust(width)
