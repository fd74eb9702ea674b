"""GET /metrics: what is counted where real clients do something, and how it is written."""

from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.command import run
from tests.clients import CONFLUENT, Record, until
from tests.doors.http.conftest import Ask

from duramen.base.metrics import BOUNDS, CATALOGUE, Metrics
from duramen.doors.http.exposition import render
from duramen.node.process import NodeProcess

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]

_JSON = {"Content-Type": "application/json"}
_MESSAGES = "duramen_nats_messages_total"


def _parsed(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def _scrape(node: NodeProcess) -> Series:
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.read().decode()
    connection.close()
    return _parsed(text)


def _value(series: Series, name: str, **labels: str) -> float:
    return series.get((name, frozenset(labels.items())), 0.0)


def test_what_goes_through_a_stream(node: NodeProcess, ask: Ask, stream_name: str) -> None:
    before = _scrape(node)
    ask("POST", "/v1/streams", {"name": stream_name, "partitions": 2})
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"x" * 100, partition=0) for _ in range(50)])
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(stream_name, 0, 10)])
    assert until(lambda: consumer.poll(0.1)) is not None
    consumer.commit(offsets=[TopicPartition(stream_name, 0, 20)], asynchronous=False)
    consumer.close()
    series = _scrape(node)

    def of(name: str) -> float:
        return _value(series, name, stream=stream_name)

    assert of("duramen_records_in_total") == 50
    assert of("duramen_bytes_in_total") > 50 * 100
    # A fetch begins at the batch that has the offset; what lies before that in it is not counted.
    assert of("duramen_records_out_total") >= 40
    assert of("duramen_bytes_out_total") >= 40 * 100
    place = {"stream": stream_name, "partition": "0"}
    assert _value(series, "duramen_log_start_offset", **place) == 0
    assert _value(series, "duramen_log_end_offset", **place) == 50
    assert _value(series, "duramen_log_bytes", **place) == of("duramen_bytes_in_total")
    assert ("duramen_log_bytes", frozenset({"stream": stream_name, "partition": "1"}.items())) in series
    group = {"group": stream_name, **place}
    assert _value(series, "duramen_group_lag_records", **group) == 30
    assert _value(series, "duramen_group_lag_seconds", **group) > 0

    def grown(name: str, **labels: str) -> float:
        return _value(series, name, **labels) - _value(before, name, **labels)

    assert grown("duramen_batch_records_sum") >= 50
    assert 1 <= grown("duramen_batch_records_count") == grown("duramen_batch_bytes_count")
    for api in ("produce", "fetch", "metadata", "offset_commit"):
        requests = grown("duramen_kafka_requests_total", api=api)
        answered = grown("duramen_kafka_request_seconds_count", api=api)
        assert 1 <= answered <= requests
    until(lambda: _value(_scrape(node), "duramen_event_loop_delay_seconds_count"))
    assert _value(series, "duramen_ready") == 1
    assert 1 << 20 < _value(series, "duramen_process_resident_bytes") < _value(series, "duramen_memory_limit_bytes")
    assert _value(series, "duramen_process_cpu_seconds_total") > 0

    # A stream's series go with the stream, a group's with the group.
    assert ask("DELETE", f"/v1/streams/{stream_name}")[0] == 204
    after = _scrape(node)
    assert not [labels for _, labels in after if ("stream", stream_name) in labels]
    assert not [labels for _, labels in after if ("group", stream_name) in labels]


def test_errors_by_api_and_code(node: NodeProcess, ask: Ask, stream_name: str) -> None:
    ask("POST", "/v1/streams", {"name": stream_name, "config": {"max.message.bytes": 1000}})
    before = _scrape(node)

    def grown(**labels: str) -> float:
        name = "duramen_kafka_request_errors_total"
        return _value(_scrape(node), name, **labels) - _value(before, name, **labels)

    producer = Producer({"bootstrap.servers": node.kafka, "message.timeout.ms": 60_000})
    failed: list[Any] = []
    producer.produce(stream_name, b"x" * 5000, on_delivery=lambda error, _: failed.append(error))
    producer.flush(60)
    assert len(failed) == 1
    assert failed[0] is not None
    assert grown(api="produce", error="message_too_large") > 0
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    consumer.assign([TopicPartition(stream_name, 0, 99)])
    until(lambda: consumer.poll(0.1) or grown(api="fetch", error="offset_out_of_range"))
    consumer.close()


def test_a_node_with_many_series_shows_some_and_counts_the_others(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"metrics.partitions.max": 30})
    node.start()
    names = [f"s{at}" for at in range(4)]
    connection = HTTPConnection(node.http, timeout=60)
    for name in names:
        connection.request("POST", "/v1/streams", f'{{"name": "{name}", "partitions": 10}}', _JSON)
        assert connection.getresponse().read()
    connection.close()
    first, second = _scrape(node), _scrape(node)
    shown = [labels for name, labels in first if name == "duramen_log_end_offset"]
    assert len(shown) == 30
    assert _value(first, "duramen_series_left_out", metric="duramen_log_end_offset") == 10
    assert _value(first, "duramen_series_left_out", metric="duramen_records_in_total") == 0
    assert shown == [labels for name, labels in second if name == "duramen_log_end_offset"]


def _rendered(metrics: Metrics) -> str:
    return "".join(render(metrics))


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1e300), max_size=5))
def test_any_label_and_any_number_come_back(values: dict[str, float]) -> None:
    metrics = Metrics()
    for stream, value in values.items():
        metrics.counter("duramen_nats_messages_total", stream).value = value
    series = _parsed(_rendered(metrics))
    found = {dict(labels)["stream"]: value for (name, labels), value in series.items() if name == _MESSAGES}
    assert found == values


@pytest.mark.parametrize("name", list(BOUNDS))
def test_a_histogram_s_buckets_add_up(name: str) -> None:
    metrics = Metrics()
    labels = next(metric.labels for metric in CATALOGUE if metric.name == name)
    histogram = metrics.histogram(name, *(label.upper() for label in labels))
    for value in (0.0, 0.001, 3.0, 1e12):
        histogram.observe(value)
    (family,) = [one for one in text_string_to_metric_families(_rendered(metrics)) if one.samples and one.name == name]
    assert family.type == "histogram"
    buckets = [sample.value for sample in family.samples if sample.name == f"{name}_bucket"]
    assert buckets == sorted(buckets)
    assert len(buckets) == len(BOUNDS[name]) + 1
    assert [s.value for s in family.samples if s.name == f"{name}_count"] == [4] == buckets[-1:]
    assert all(sample.labels[label] == label.upper() for sample in family.samples for label in labels)


def test_the_view_of_a_keyed_stream(node: NodeProcess, ask: Ask, stream_name: str) -> None:
    ask("POST", "/v1/streams", {"name": stream_name, "partitions": 1, "config": {"keyed": True}})
    wishes = [{"key": f"k{number % 5}", "value": "v"} for number in range(20)]
    ask("POST", f"/v1/streams/{stream_name}/records", {"records": wishes})
    place = {"stream": stream_name, "partition": "0"}
    until(lambda: _value(_scrape(node), "duramen_view_superseded_records", **place) == 15)
    series = _scrape(node)
    wanted = {"keys": 5, "position": 20, "lag_records": 0, "oldest_snapshot": 0, "stands": 0}
    assert {name: _value(series, f"duramen_view_{name}", **place) for name in wanted} == wanted
    memory = _value(series, "duramen_view_memory_bytes", **place)
    assert _value(series, "duramen_view_bytes_per_key", **place) == round(memory / 5, 1) > 0
    described = run("stream", "describe", stream_name, server=node.http).out.splitlines()
    (at,) = (at for at, line in enumerate(described) if line.startswith("VIEW OF"))
    assert described[at + 1].split()[:7] == ["0", "0", "20", "0", "0", "5", "15"]
