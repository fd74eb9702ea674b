"""The node's metrics in Prometheus' text format."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from duramen.base.metrics import CATALOGUE, Histogram, Metrics

__all__ = ["CONTENT_TYPE_LATEST", "render"]


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        for (name, labels), counter in self._metrics.counters().items():
            by_name.setdefault(name, []).append((labels, counter.value))
        histograms = self._metrics.histograms()
        for metric in CATALOGUE:
            if metric.kind == "histogram":
                if metric.name in histograms:
                    yield _histogram(metric.name, metric.doc, histograms[metric.name])
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            rendered = family(metric.name, metric.doc, labels=metric.labels)
            for labels, value in by_name.get(metric.name, ()):
                rendered.add_metric(labels, value)
            yield rendered


def _histogram(name: str, doc: str, histogram: Histogram) -> HistogramMetricFamily:
    total = 0
    buckets = []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    family = HistogramMetricFamily(name, doc)
    family.add_metric((), buckets, histogram.sum)
    return family


def render(metrics: Metrics) -> bytes:
    """Every metric there is."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    return generate_latest(registry)
