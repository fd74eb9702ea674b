"""Byte-rate quotas at the door: what is answered, and what is not read meanwhile, while time stands still."""

import struct
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from tests.clients import CONFLUENT, Record, until
from tests.doors.kafka.asking import Asking, codes
from tests.doors.kafka.by_hand import ByHand, ManualConnection
from tests.raw import batch_of

from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

PRODUCE, FETCH = 9, 13


def _quota(client_id: str | None, **rates: float | None) -> Message:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in rates.items()]
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


def _alter(connection: ManualConnection, wish: Message) -> None:
    connection.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, REQUESTS[ApiKey.ALTER_CLIENT_QUOTAS].encode(1, wish))
    answer = connection.answer(ApiKey.ALTER_CLIENT_QUOTAS, 1)
    assert answer is not None
    assert codes(RESPONSES[ApiKey.ALTER_CLIENT_QUOTAS].decode(1, *answer)["entries"]) == [0]


def _produce(connection: ManualConnection, size: int, acks: int = -1) -> None:
    topics = [TopicData("a", [PartitionData(0, memoryview(batch_of(bytes(size))))])]
    body = b"".join(produce.encode_request(PRODUCE, ProduceRequest(None, acks, 1000, topics)))
    connection.send(ApiKey.PRODUCE, PRODUCE, body)


def _produced(connection: ManualConnection) -> int:
    """The throttle time of an answer that says all is well."""
    answer = connection.answer(ApiKey.PRODUCE, PRODUCE)
    assert answer is not None
    frame, start = answer
    (topic,) = produce.decode_response(PRODUCE, frame, start)
    assert [part.error_code for part in topic.partitions] == [0]
    (throttle_ms,) = struct.unpack(">i", frame[-5:-1])
    return int(throttle_ms)


def test_a_producer_above_its_quota_is_told_and_not_read_from() -> None:
    door = ByHand()
    door.manual.create("a")
    operator, slow, free = door.connect("operator"), door.connect("slow"), door.connect("free")
    _alter(operator, _quota("slow", producer_byte_rate=1000.0))
    _produce(slow, 9000)
    assert _produced(slow) == 0
    _produce(slow, 11_000)
    throttle_ms = _produced(slow)
    assert 10_000 < throttle_ms < 11_000
    assert not slow.reads()
    _produce(free, 11_000)
    assert _produced(free) == 0
    assert free.reads()
    door.advance(throttle_ms - 1)
    assert not slow.reads()
    door.advance(1)
    assert slow.reads()
    _produce(slow, 11_000)
    throttle_ms = _produced(slow)
    assert throttle_ms > 0
    _alter(operator, _quota("slow", producer_byte_rate=None))
    # What it sends before it may is not looked at, though there is no quota any more.
    _produce(slow, 50_000)
    assert slow.answer(ApiKey.PRODUCE, PRODUCE) is None
    door.advance(throttle_ms)
    assert _produced(slow) == 0


def test_without_acks_the_connection_alone_slows_the_producer_down() -> None:
    door = ByHand()
    door.manual.create("a")
    _alter(door.connect("operator"), _quota(None, producer_byte_rate=1000.0))
    slow = door.connect("slow")
    _produce(slow, 30_000, acks=0)
    assert slow.answer(ApiKey.PRODUCE, PRODUCE) is None
    assert not slow.reads()
    # A longer wait that comes meanwhile counts.
    _produce(slow, 30_000, acks=0)
    door.advance(21_000)
    assert not slow.reads()
    door.advance(40_000)
    assert slow.reads()


def _fetch(door: ByHand, connection: ManualConnection, offset: int) -> tuple[int, int]:
    """(Throttle time, bytes of records) of a fetch's answer."""
    stream = door.manual.broker.streams.get("a")
    topics = [FetchTopic(stream.id, [FetchPartition(0, offset, 1 << 20)])]
    request = FetchRequest(-1, 0, 1, 1 << 20, 0, 0, -1, topics)
    connection.send(ApiKey.FETCH, FETCH, fetch.encode_request(FETCH, request))
    answer = connection.answer(ApiKey.FETCH, FETCH)
    assert answer is not None
    frame, start = answer
    throttle_ms, _, _ = struct.unpack_from(">ihi", frame, start)
    code, parts = fetch.decode_response(FETCH, frame, start)
    assert code == 0
    return throttle_ms, sum(len(part.records) for part in parts)


def test_a_consumer_above_its_quota_gets_nothing_until_it_may() -> None:
    door = ByHand()
    door.manual.create("a")
    for _ in range(3):
        door.manual.produce("a", bytes(6000))
        door.manual.settle()
    operator, slow = door.connect("operator"), door.connect("slow")
    _alter(operator, _quota("slow", consumer_byte_rate=1000.0))
    throttle_ms, size = _fetch(door, slow, 0)
    assert (throttle_ms, size // 6000) == (0, 1)  # an answer is no larger than what fits into all windows
    throttle_ms, size = _fetch(door, slow, 1)
    assert throttle_ms > 0
    assert size == 0
    assert not slow.reads()
    door.advance(throttle_ms)
    assert slow.reads()
    door.advance(11_000 - throttle_ms)
    throttle_ms, size = _fetch(door, slow, 1)
    assert (throttle_ms, size // 6000) == (0, 1)
    assert _fetch(door, door.connect("free"), 0)[1] // 6000 == 3


def test_a_throttled_connection_that_is_gone_wakes_nobody() -> None:
    door = ByHand()
    door.manual.create("a")
    _alter(door.connect("operator"), _quota("slow", producer_byte_rate=10.0))
    slow = door.connect("slow")
    _produce(slow, 30_000)
    assert _produced(slow) > 0
    slow.lose()
    door.advance(10_000_000)
    assert not slow.reads()


# -- at a real node -----------------------------------------------------------------------------------


def test_librdkafka_is_throttled_and_says_so(node: NodeProcess, stream_name: str) -> None:
    with Asking(node) as asking:
        client_id = f"slow-{stream_name}"
        wish = _quota(client_id, producer_byte_rate=20_000.0)
        assert codes(asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, wish)["entries"]) == [0]
        CONFLUENT.produce(node.kafka, stream_name, [Record(b"x")])
        heard: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": node.kafka, "client.id": client_id,
                "throttle_cb": lambda event: heard.append(event.throttle_time),
            }
        )  # fmt: skip
        producer.produce(stream_name, bytes(220_000))
        assert producer.flush(60) == 0
        until(lambda: producer.poll(0.1) is not None and any(heard))
        assert 0 < max(heard) < 60
        wish = _quota(client_id, producer_byte_rate=None)
        assert codes(asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, wish)["entries"]) == [0]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_described_and_changed(node: NodeProcess, stream_name: str, version: int) -> None:
    name = stream_name
    with Asking(node) as asking:

        def alter(
            *entries: tuple[list[tuple[str, str | None]], dict[str, float | None]], check: bool = False
        ) -> list[int]:
            wish = {
                "entries": [
                    {
                        "entity": [{"entity_type": kind, "entity_name": one} for kind, one in entity],
                        "ops": [
                            {"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops.items()
                        ],
                    }
                    for entity, ops in entries
                ],
                "validate_only": check,
            }
            return codes(asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, wish)["entries"])

        def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Message:
            wish = {
                "components": [
                    {"entity_type": kind, "match_type": match, "match": one} for kind, match, one in components
                ],
                "strict": strict,
            }
            return asking.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, wish)

        user: list[tuple[str, str | None]] = [("user", name)]
        both: list[tuple[str, str | None]] = [("user", name), ("client-id", None)]
        bad = ErrorCode.INVALID_REQUEST
        assert alter((user, {"producer_byte_rate": 5.0}), check=True) == [0]
        assert describe(("user", 0, name))["entries"] == []
        assert alter(
            (user, {"producer_byte_rate": 5.0}), (both, {"consumer_byte_rate": 7.0}), (user, {}), ([], {}),
            ([("user", name + "2")], {"request_percentage": 50.0}),
        ) == [bad, 0, bad, bad]  # fmt: skip
        found = {
            tuple((one["entity_type"], one["entity_name"]) for one in entry["entity"]): {
                one["key"]: one["value"] for one in entry["values"]
            }
            for entry in describe(("user", 0, name))["entries"]
        }
        assert found == {
            (("user", name),): {"producer_byte_rate": 5.0},
            (("client-id", None), ("user", name)): {"consumer_byte_rate": 7.0},
        }
        assert len(describe(("user", 0, name), strict=True)["entries"]) == 1
        for wrong in (("user", 0, None), ("user", 1, "x"), ("user", 2, "x"), ("user", 7, None), ("", 2, None)):
            answer = describe(wrong)
            assert (answer["error_code"], answer["entries"]) == (bad, None)
        assert describe(("who", 2, None))["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        assert alter((user, {"producer_byte_rate": None}), (both, {"consumer_byte_rate": None})) == [0, 0]
        assert describe(("user", 0, name))["entries"] == []


def test_quotas_are_there_after_kill_9(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    with Asking(node) as asking:
        wish = _quota("slow", producer_byte_rate=1000.0, consumer_byte_rate=2000.0)
        assert codes(asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, wish)["entries"]) == [0]
        wish = _quota("slow", consumer_byte_rate=None)
        assert codes(asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, wish)["entries"]) == [0]
    node.kill()
    node.start()
    with Asking(node) as asking:
        (entry,) = asking.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})["entries"]
    assert entry["entity"] == [{"entity_type": "client-id", "entity_name": "slow"}]
    assert entry["values"] == [{"key": "producer_byte_rate", "value": 1000.0}]


def test_quotas_are_there_after_a_crash() -> None:
    door = ByHand()
    door.manual.create("a")
    _alter(door.connect("operator"), _quota("slow", producer_byte_rate=1000.0))
    door.manual.crash()
    assert door.manual.broker.quotas.produced("slow", 100_000, 0) > 0
