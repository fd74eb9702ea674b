"""Text in columns, for people and for `awk` alike: no frames, no colours."""

from collections.abc import Container, Sequence

__all__ = ["table"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """Lines with two blanks between columns; those in `right` are set to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
