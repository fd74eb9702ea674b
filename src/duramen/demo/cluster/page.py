"""The HTML page: the plot, the events in order, the proof, and the report, in one self-contained file."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

from duramen.demo.cluster.picture import TITLE
from duramen.demo.page import STYLE
from duramen.demo.proof import PartitionProof

__all__ = ["render"]

_LEGEND = (
    "Each node has a colour. A node is white while it is gone: killed, or standing still. Of a partition the wide band"
    " is its leader; the three lines below it are the nodes that are in sync."
)


def render(
    story: Iterable[tuple[float, str]],
    proofs: Sequence[PartitionProof],
    report: Iterable[tuple[str, str]],
    picture: bytes,
) -> str:
    """The page. `picture` is the timeline as PNG."""
    facts = "".join(f"<dt>{escape(heading)}</dt><dd>{escape(words)}</dd>" for heading, words in report)
    source = base64.b64encode(picture).decode("ascii")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Duramen: a cluster</title><style>{STYLE}</style></head><body>\n"
        f'<h1>{escape(TITLE)}</h1>\n<img alt="{escape(TITLE)}" src="data:image/png;base64,{source}">\n'
        f"<p>{escape(_LEGEND)}</p>\n<h2>In which order</h2>\n{_story(story)}\n"
        f"<h2>What came out is what went in</h2>\n{_proofs(proofs)}\n"
        f"<h2>The figures</h2>\n<dl>{facts}</dl>\n</body></html>\n"
    )


def _story(story: Iterable[tuple[float, str]]) -> str:
    rows = "\n".join(f"<tr><td>{at_s:.2f} s</td><td>{escape(text)}</td></tr>" for at_s, text in story)
    return f'<table class="story"><tbody>\n{rows}\n</tbody></table>'


def _proofs(proofs: Sequence[PartitionProof]) -> str:
    headings = ("partition", "acknowledged", "read", "digest in", "digest out")
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    rows = "\n".join(
        f"<tr><td>{one.partition}</td><td>{one.acknowledged:,}</td><td>{one.read:,}</td>"
        f"<td>{one.digest_in}</td><td>{one.digest_out}</td></tr>"
        for one in proofs
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
