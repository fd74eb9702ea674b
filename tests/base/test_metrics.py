"""Instruments and their catalogue."""

import re

import pytest

from duramen.base.metrics import BOUNDS, CATALOGUE, Metrics


def test_the_catalogue_follows_prometheus() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in CATALOGUE:
        assert re.fullmatch(r"duramen_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.doc.endswith(".")
        assert (metric.name in BOUNDS) == (metric.kind == "histogram")


def test_a_label_set_has_one_instrument() -> None:
    metrics = Metrics()
    metrics.counter("duramen_nats_messages_total", "a").value += 2
    metrics.counter("duramen_nats_messages_total", "b").value += 3
    metrics.counter("duramen_streams").value = 2
    assert metrics.counter("duramen_nats_messages_total", "a").value == 2
    metrics.forget("stream", "a")
    assert [(key, counter.value) for key, counter in metrics.counters().items()] == [
        (("duramen_nats_messages_total", ("b",)), 3),
        (("duramen_streams", ()), 2),
    ]
    with pytest.raises(ValueError, match="takes the labels"):
        metrics.counter("duramen_nats_messages_total")


def test_a_histogram_counts_by_upper_bound() -> None:
    histogram = Metrics().histogram("duramen_wal_write_bytes")
    for value in (1, 256, 257, 1 << 40):
        histogram.observe(value)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[-1], sum(histogram.counts)) == (2, 1, 1, 4)
    assert histogram.sum == 514 + (1 << 40)
