"""Request metrics per API: number, response time, errors."""

from collections.abc import Collection, Sequence

from duramen.base.metrics import Counter, Histogram, Metrics
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["RequestMetrics", "error_codes"]


class RequestMetrics:
    """The Kafka door's instruments for requests. The series of an API come with its first request."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._requests = {key: metrics.counter("duramen_kafka_requests_total", key.name.lower()) for key in ApiKey}
        self._seconds: dict[int, Histogram] = {}
        self._errors: dict[tuple[int, int], Counter] = {}

    def requests(self, api: ApiKey) -> Counter:
        """The number of requests."""
        return self._requests[api]

    def came(self, api: ApiKey) -> None:
        """A request has arrived."""
        self._requests[api].value += 1

    def answered(self, api_key: int, seconds: float, errors: Collection[int]) -> None:
        """Count a response after this many seconds; `errors` are its distinct error codes."""
        histogram = self._seconds.get(api_key) or self._new_histogram(api_key)
        histogram.observe(seconds)
        for code in errors:
            self._error(api_key, code).value += 1

    def answered_all(self, api_key: int, seconds: Sequence[float]) -> None:
        """Like `answered`, for several requests without errors."""
        histogram = self._seconds.get(api_key) or self._new_histogram(api_key)
        histogram.observe_all(seconds)

    def _new_histogram(self, api_key: int) -> Histogram:
        name = ApiKey(api_key).name.lower()
        histogram = self._seconds[api_key] = self._metrics.histogram("duramen_kafka_request_seconds", name)
        return histogram

    def _error(self, api_key: int, code: int) -> Counter:
        counter = self._errors.get((api_key, code))
        if counter is None:
            labels = ApiKey(api_key).name.lower(), ErrorCode(code).name.lower()
            counter = self._errors[api_key, code] = self._metrics.counter("duramen_kafka_request_errors_total", *labels)
        return counter


def error_codes(message: Message) -> set[int]:
    """The different error codes in an answer, at any depth, but for 0."""
    found: set[int] = set()
    _collect(message, found)
    return found


def _collect(message: Message, found: set[int]) -> None:
    code = message.get("error_code")
    if code:
        found.add(int(code))
    for value in message.values():
        if type(value) is list and value and type(value[0]) is dict:
            for item in value:
                _collect(item, found)
