"""Behaviours: records, from a client's producer to its consumer."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.compat.staging import Behaviour, Stage, record, values

__all__ = ["PRODUCING"]

_MEGABYTE: Final = 1_000_000
_IN_FLIGHT: Final = 200
_EPOCH: Final = 1_600_000_000_000


def _compression(codec: str) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        topic = stage.topic()
        given = [f"a line that repeats itself, a line that repeats itself {number}" for number in range(200)]
        offsets = stage.driver.ask("produce", topic=topic, records=[record(one) for one in given], compression=codec)
        assert offsets == list(range(200))
        # The first batch of some clients leaves before the second record is there: small, and still compressed.
        assert stage.codecs(topic) == {codec}
        assert values(stage.driver.ask("read", topic=topic, partition=0, offset=0, count=200)) == given

    return run


def _acks(acks: int) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        topic = stage.topic()
        given = [f"value {number}" for number in range(20)]
        offsets = stage.driver.ask("produce", topic=topic, records=[record(one) for one in given], acks=acks)
        assert acks == 0 or offsets == list(range(20))
        assert values(stage.driver.ask("read", topic=topic, partition=0, offset=0, count=20)) == given

    return run


def _back(stage: Stage, *given: dict[str, Any]) -> list[dict[str, Any]]:
    topic = stage.topic()
    stage.driver.ask("produce", topic=topic, records=list(given))
    found: list[dict[str, Any]] = stage.driver.ask("read", topic=topic, partition=0, offset=0, count=len(given))
    assert [one["offset"] for one in found] == list(range(len(given)))
    return found


def _keys(stage: Stage) -> None:
    given = [("k", "v"), ("", "v"), (None, "v"), ("k\x00\xff", "\x00\xff")]
    found = _back(stage, *(record(value, key) for key, value in given))
    assert [(one["key"], one["value"]) for one in found] == given


def _values(stage: Stage) -> None:
    given = [("k", "v"), ("k", ""), ("k", None), ("", ""), (None, "v")]
    found = _back(stage, *(record(value, key) for key, value in given))
    assert [(one["key"], one["value"]) for one in found] == given


def _headers(stage: Stage) -> None:
    given: Sequence[Sequence[list[str]]] = [[["a", "1"], ["a", "2"], ["b", ""]], [], [["b", "\x00\xff"], ["a", "3"]]]
    found = _back(stage, *(record("v", "k", [(name, value) for name, value in one]) for one in given))
    assert [one["headers"] for one in found] == given


def _null_headers(stage: Stage) -> None:
    (found,) = _back(stage, record("v", "k", [("nothing", None), ("empty", "")]))
    assert found["headers"] == [["nothing", None], ["empty", ""]]


def _timestamps(stage: Stage) -> None:
    given = [1_600_000_000_123, 1_500_000_000_456, 1_600_000_000_124]
    found = _back(stage, *(record("v", timestamp=one) for one in given))
    assert [one["timestamp"] for one in found] == given


def _log_append_time(stage: Stage) -> None:
    topic = stage.topic(config={"message.timestamp.type": "LogAppendTime"})
    stage.driver.ask("produce", topic=topic, records=[record("v", timestamp=1_500_000_000_000)])
    (found,) = stage.driver.ask("read", topic=topic, partition=0, offset=0, count=1)
    assert found["timestamp"] > 1_700_000_000_000


def _large(stage: Stage) -> None:
    given = ["ab" * (_MEGABYTE // 2), "small", "cd" * (_MEGABYTE // 2)]
    assert values(_back(stage, *map(record, given))) == given


def _partitions(stage: Stage) -> None:
    topic = stage.topic(3)
    stage.driver.ask("produce", topic=topic, records=[record(f"in {at}", partition=at) for at in (2, 0, 1, 2)])
    found = [
        values(stage.driver.ask("read", topic=topic, partition=at, offset=0, count=1 + at // 2)) for at in range(3)
    ]
    assert found == [["in 0"], ["in 1"], ["in 2", "in 2"]]


def _idempotent(stage: Stage) -> None:
    """The node is killed while batches are in flight; nothing is lost, doubled or put out of order."""
    topic = stage.topic()
    stage.driver.ask("open", producer=topic, idempotent=True)
    given = [f"value {number}" for number in range(3 * _IN_FLIGHT)]
    offsets = []
    for first in range(0, len(given), _IN_FLIGHT):
        records = [record(one) for one in given[first : first + _IN_FLIGHT]]
        stage.driver.ask("send", producer=topic, topic=topic, records=records)
        if first == _IN_FLIGHT:
            stage.restart()
        offsets += stage.driver.ask("flush", producer=topic)
    stage.driver.ask("close", producer=topic)
    assert offsets == list(range(len(given)))
    assert values(stage.driver.ask("read", topic=topic, partition=0, offset=0, count=len(given))) == given


def _seek_by_time(stage: Stage) -> None:
    topic, ask = stage.topic(), stage.driver.ask
    ask("produce", topic=topic, records=[record(str(at), timestamp=_EPOCH + 1000 * at) for at in range(50)])
    assert ask("offset_at", topic=topic, partition=0, timestamp=_EPOCH + 19_001) == 20
    assert ask("offset_at", topic=topic, partition=0, timestamp=1) == 0
    assert ask("offset_at", topic=topic, partition=0, timestamp=_EPOCH + 60_000) in {None, -1, 50}
    assert values(ask("read", topic=topic, partition=0, offset=20, count=1)) == ["20"]


PRODUCING: Final = (
    *(
        Behaviour(
            f"produce, {codec}", f"batches are stored with compression {codec} and read back", _compression(codec)
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ),
    *(
        Behaviour(
            f"produce, acks={'all' if acks == -1 else acks}", "acknowledged as asked, stored in order", _acks(acks)
        )
        for acks in (0, 1, -1)
    ),
    Behaviour("keys", "null, empty and binary keys are told apart", _keys),
    Behaviour("values", "null and empty values are told apart", _values),
    Behaviour("headers", "headers keep their order, repeated and empty ones too", _headers),
    Behaviour("null headers", "a header without a value is not an empty one", _null_headers),
    Behaviour("timestamps", "the producer's times are kept", _timestamps),
    Behaviour("log append time", "with LogAppendTime the node's clock is read", _log_append_time),
    Behaviour("1 MB records", "records of a million bytes, between small ones", _large),
    Behaviour("partitions", "records go where they are sent", _partitions),
    Behaviour(
        "idempotence", "kill -9 of the node with batches in flight: nothing lost, doubled, reordered", _idempotent
    ),
    Behaviour("seek by time", "the offset of the first record at or after a time", _seek_by_time),
)
