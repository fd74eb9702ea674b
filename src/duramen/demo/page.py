"""The HTML page: the chart, the delays behind it, and the report, in one self-contained file. Pure text."""

import base64
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from duramen.demo.chart import TITLE
from duramen.demo.delays import Grid

__all__ = ["STYLE", "render"]

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } img { max-width: 100%; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .5rem; text-align: right; } th { font-weight: 600; color: #555; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
tbody tr:nth-child(odd) { background: #f6f6f6; } .story td:last-child { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.5rem; } dd { margin: 0; } dt { color: #555; }
"""


def render(grid: Grid, airlines: Mapping[str, str], report: Iterable[tuple[str, str]], picture: bytes) -> str:
    """The page. `picture` is the chart as PNG."""
    facts = "".join(f"<dt>{escape(heading)}</dt><dd>{escape(words)}</dd>" for heading, words in report)
    source = base64.b64encode(picture).decode("ascii")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Duramen: the flights</title><style>{STYLE}</style></head><body>\n"
        f'<h1>{escape(TITLE)}</h1>\n<img alt="{escape(TITLE)}" src="data:image/png;base64,{source}">\n'
        f"<h2>The figures</h2>\n{_table(grid, airlines)}\n"
        f"<h2>How they came here</h2>\n<dl>{facts}</dl>\n</body></html>\n"
    )


def _table(grid: Grid, airlines: Mapping[str, str]) -> str:
    head = "".join(f"<th>{hour}</th>" for hour in grid.hours)
    rows = "\n".join(
        f"<tr><td>{escape(airlines.get(carrier, carrier))}</td>"
        + "".join(f"<td>{'' if mean is None else f'{round(mean, 1) + 0.0}'}</td>" for mean in means)
        + "</tr>"
        for carrier, means in zip(grid.carriers, grid.means, strict=True)
    )
    return f"<table><thead><tr><th>mean delay, minutes</th>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
