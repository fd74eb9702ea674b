"""Which errors an answer has, and what is counted of it."""

import pytest

from duramen.base.metrics import Metrics
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.request.metrics import RequestMetrics, error_codes


@pytest.mark.parametrize(
    ("message", "codes"),
    [
        ({}, set()),
        ({"error_code": ErrorCode.NONE, "topics": []}, set()),
        ({"error_code": ErrorCode.ILLEGAL_GENERATION}, {22}),
        ({"error_code": 0, "brokers": [1, 2], "topics": [{"error_code": 3}, {"error_code": 3}]}, {3}),
        ({"groups": [{"error_code": 16}, {"error_code": 24}]}, {16, 24}),
        ({"topics": [{"name": "a", "partitions": [{"error_code": 0, "replicas": [1]}, {"error_code": 6}]}]}, {6}),
    ],
)
def test_every_error_once_at_any_depth(message: Message, codes: set[int]) -> None:
    assert error_codes(message) == codes


def test_an_answer_is_counted_under_its_api_and_its_errors() -> None:
    metrics = Metrics()
    measuring = RequestMetrics(metrics)
    measuring.came(ApiKey.HEARTBEAT)
    measuring.answered(ApiKey.HEARTBEAT, 0.003, {ErrorCode.UNKNOWN_MEMBER_ID})
    measuring.answered(ApiKey.HEARTBEAT, 0.003, ())
    assert metrics.counter("duramen_kafka_requests_total", "heartbeat").value == 1
    assert metrics.counter("duramen_kafka_request_errors_total", "heartbeat", "unknown_member_id").value == 1
    (((name, labels), histogram),) = metrics.histograms().items()
    assert (name, labels, sum(histogram.counts)) == ("duramen_kafka_request_seconds", ("heartbeat",), 2)
