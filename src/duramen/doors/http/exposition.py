"""The node's metrics in Prometheus text format, rendered piece by piece.

https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format)
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from duramen.base.metrics import CATALOGUE, Histogram, Labels, Metric, Metrics, Sample
from duramen.doors.completion import completion
from duramen.service.broker import Broker

__all__ = ["CONTENT_TYPE", "answer", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LINES_AT_ONCE: Final = 500  # about a millisecond
_SKIPPED_AT_ONCE: Final = 2000
_LEFT_OUT: Final = "duramen_series_left_out"


async def answer(metrics: Metrics, broker: Broker | None, problem: str) -> Response:
    """The metrics of the node; the event loop runs other work between the pieces.

    `problem` returns why not every door accepts requests.
    """
    metrics.counter("duramen_ready").value = 1 if broker is not None and not problem else 0
    if broker is not None:
        for _ in broker.measures.update():
            await asyncio.sleep(0)
        await completion(broker.measures.ask)
    return StreamingResponse(_pieces(metrics), media_type=CONTENT_TYPE)


async def _pieces(metrics: Metrics) -> AsyncIterator[str]:
    for piece in render(metrics):
        if piece:
            yield piece
        await asyncio.sleep(0)


def render(metrics: Metrics) -> Iterator[str]:
    """Every metric, a few hundred lines at a time, so that other work runs in between."""
    families = _Families(metrics)
    lines: list[str] = []
    for metric in CATALOGUE:
        lines.append(f"# HELP {metric.name} {_escaped(metric.doc)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for line in families.lines(metric):
            if line is not None:
                lines.append(line)
            if line is None or len(lines) >= _LINES_AT_ONCE:
                yield "".join(f"{line}\n" for line in lines)
                lines.clear()
    yield "".join(f"{line}\n" for line in lines)


class _Families:
    """The lines of each metric: at most `most_series` series; the rest are only counted."""

    def __init__(self, metrics: Metrics) -> None:
        self._most = metrics.most_series
        self._computed = metrics.computed()
        self._samples: dict[str, list[Sample]] = {}
        self._histograms: dict[str, list[tuple[Labels, Histogram]]] = {}
        self._left_out: dict[str, int] = {}
        for (name, labels), counter in metrics.counters().items():
            self._samples.setdefault(name, []).append((labels, counter.value))
        for (name, labels), histogram in metrics.histograms().items():
            self._histograms.setdefault(name, []).append((labels, histogram))

    def lines(self, metric: Metric) -> Iterator[str | None]:
        """The metric's lines; None from time to time while series are skipped."""
        if metric.kind == "histogram":
            for labels, histogram in self._histograms.get(metric.name, ()):
                yield from _histogram_lines(metric, labels, histogram)
            return
        shown = left_out = 0
        for labels, value in self._of(metric.name):
            if shown < self._most:
                shown += 1
                yield f"{metric.name}{_label_text(metric.labels, labels)} {_number(value)}"
            else:
                left_out += 1
                if left_out % _SKIPPED_AT_ONCE == 0:
                    yield None
        self._left_out[metric.name] = left_out

    def _of(self, name: str) -> Iterable[Sample]:
        if name == _LEFT_OUT:
            return [((metric.name,), self._missing(metric.name)) for metric in CATALOGUE if _is_unbounded(metric)]
        computed = self._computed.get(name)
        return self._samples.get(name, ()) if computed is None else computed.samples()

    def _missing(self, name: str) -> int:
        computed = self._computed.get(name)
        return self._left_out.get(name, 0) + (0 if computed is None else computed.left_out())


def _is_unbounded(metric: Metric) -> bool:
    """Whether the number of series has no fixed bound."""
    return not {"stream", "group"}.isdisjoint(metric.labels)


def _histogram_lines(metric: Metric, labels: Labels, histogram: Histogram) -> Iterator[str]:
    names = (*metric.labels, "le")
    counts = list(histogram.counts)
    total = 0
    for bound, count in zip((*map(_number, histogram.bounds), "+Inf"), counts, strict=True):
        total += count
        yield f"{metric.name}_bucket{_label_text(names, (*labels, bound))} {total}"
    own = _label_text(metric.labels, labels)
    yield f"{metric.name}_count{own} {total}"
    yield f"{metric.name}_sum{own} {_number(histogram.sum)}"


def _label_text(names: tuple[str, ...], values: Labels) -> str:
    if not names:
        return ""
    pairs = [f'{name}="{_quoted(value)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
