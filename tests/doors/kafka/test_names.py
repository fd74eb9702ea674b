"""Names that resolve later: requests wait for them until their deadline, in order, each connection for itself."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pytest
from tests.doors.kafka.by_hand import ByHand, ManualConnection

from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.versions import ApiKey
from duramen.service.admission import LONGEST_RESOLUTION_MS, Service
from duramen.service.broker import Broker
from duramen.service.resolve import Found, StreamResolver, Topic, TopicKey

SLOW, FAST = "slow", "fast"
TIMEOUT_MS = 3_000
VERSIONS = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 13, ApiKey.LIST_OFFSETS: 10, ApiKey.METADATA: 12}
ASKED = list(VERSIONS)


class Later:
    """A resolver that knows some names only once it is told."""

    def __init__(self, broker: Broker) -> None:
        self._streams = StreamResolver(broker.streams)
        self.slow: set[TopicKey] = {SLOW}
        self._waiting: list[Callable[[], None]] = []

    all_known = None

    def known(self, keys: Collection[TopicKey]) -> Found | None:
        return None if self.slow & {*keys} else self._streams.known(keys)

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        if self.slow & {*keys}:
            self._waiting.append(lambda: self._streams.resolve(keys, done))
        else:
            self._streams.resolve(keys, done)

    def every(self) -> Iterable[Topic]:
        return self._streams.every()

    def from_name(self, first: str) -> Iterator[Topic]:
        return self._streams.from_name(first)

    def answer(self) -> None:
        """Now it knows."""
        waiting, self._waiting = self._waiting, []
        for resolve in waiting:
            resolve()


class World(ByHand):
    """A door whose names resolve later."""

    def __init__(self) -> None:
        super().__init__(service=self._service)
        self._ids = {name: self.manual.create(name, 1).id for name in (SLOW, FAST)}
        self.names.slow.add(self._ids[SLOW])

    def _service(self, broker: Broker) -> Service:
        self.names = Later(broker)
        return Service(broker, resolver=self.names)

    def answer(self) -> None:
        """The resolver answers, and what can be done at once is done."""
        self.names.answer()
        self.manual.settle()

    def request(self, api: ApiKey, name: str, value: bytes = b"a") -> tuple[ApiKey, int, bytes]:
        """A request about a topic."""
        version = VERSIONS[api]
        partition: dict[str, Any] = {"partition_index": 0, "timestamp": -1}
        if api is ApiKey.PRODUCE:
            batch = memoryview(encode([BatchInput(1, None, value)]))
            topics = [TopicData(name, [PartitionData(0, batch)])]
            return api, version, b"".join(produce.encode_request(version, ProduceRequest(None, -1, TIMEOUT_MS, topics)))
        if api is ApiKey.FETCH:
            wanted = [FetchTopic(self._ids[name], [FetchPartition(0, 0, 1 << 20, -1)])]
            asked = FetchRequest(-1, TIMEOUT_MS, 0, 1 << 20, 0, 0, -1, wanted)
            return api, version, fetch.encode_request(version, asked)
        if api is ApiKey.LIST_OFFSETS:
            message: dict[str, Any] = {
                "replica_id": -1, "isolation_level": 0, "timeout_ms": TIMEOUT_MS,
                "topics": [{"name": name, "partitions": [partition]}],
            }  # fmt: skip
            return api, version, REQUESTS[api].encode(version, message)
        message = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        return api, version, REQUESTS[api].encode(version, message)

    def outcome(self, connection: ManualConnection, api: ApiKey) -> tuple[str, int] | None:
        """The topic of the next answer, and its error; None where there is no answer yet."""
        found = connection.answer(api, VERSIONS[api])
        if found is None:
            return None
        if api is ApiKey.PRODUCE:
            topic = produce.decode_response(VERSIONS[api], *found)[0]
            return topic.name, topic.partitions[0].error_code
        if api is ApiKey.FETCH:
            _, (fetched,) = fetch.decode_response(VERSIONS[api], *found)
            return next(name for name, id_ in self._ids.items() if id_ == fetched.topic), fetched.error_code
        described = RESPONSES[api].decode(VERSIONS[api], *found)["topics"][0]
        code = described["error_code"] if api is ApiKey.METADATA else described["partitions"][0]["error_code"]
        return described["name"], code


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("api", ASKED, ids=lambda api: api.name.lower())
def test_a_request_is_handled_once_its_names_are_known(world: World, api: ApiKey) -> None:
    slow, fast = world.connect("a"), world.connect("b")
    slow.send(*world.request(api, SLOW))
    fast.send(*world.request(api, FAST))
    assert world.outcome(slow, api) is None
    assert world.outcome(fast, api) == (FAST, ErrorCode.NONE)
    world.answer()
    assert world.outcome(slow, api) == (SLOW, ErrorCode.NONE)


@pytest.mark.parametrize("api", ASKED, ids=lambda api: api.name.lower())
def test_a_name_that_is_not_known_in_time_is_a_reason_to_ask_again(world: World, api: ApiKey) -> None:
    connection = world.connect()
    connection.send(*world.request(api, SLOW))
    limit_ms = LONGEST_RESOLUTION_MS if api is ApiKey.METADATA else TIMEOUT_MS
    world.advance(limit_ms - 1)
    assert world.outcome(connection, api) is None
    world.advance(1)
    again = ErrorCode.LEADER_NOT_AVAILABLE if api is ApiKey.METADATA else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.outcome(connection, api) == (SLOW, again)
    world.answer()  # too late
    assert world.outcome(connection, api) is None
    connection.send(*world.request(api, FAST))
    assert world.outcome(connection, api) == (FAST, ErrorCode.NONE)


def test_requests_keep_their_order_on_a_connection(world: World) -> None:
    connection = world.connect()
    asked = [
        world.request(ApiKey.PRODUCE, SLOW),
        world.request(ApiKey.METADATA, FAST),
        world.request(ApiKey.PRODUCE, FAST),
    ]
    connection.send_together(*asked)
    assert not connection.reads()
    assert world.outcome(connection, ApiKey.PRODUCE) is None
    assert not world.manual.values(FAST)  # nothing behind it is done before it
    world.answer()
    assert connection.reads()
    answers = [world.outcome(connection, api) for api, *_ in asked]
    assert answers == [(SLOW, 0), (FAST, 0), (FAST, 0)]


def test_batches_of_one_producer_are_stored_in_their_order(world: World) -> None:
    connection = world.connect()
    connection.send_together(*(world.request(ApiKey.PRODUCE, SLOW, b"%d" % number) for number in range(3)))
    for _ in range(3):
        world.answer()
    assert [world.outcome(connection, ApiKey.PRODUCE) for _ in range(3)] == [(SLOW, 0)] * 3
    assert world.manual.values(SLOW) == [b"0", b"1", b"2"]


def test_nothing_is_done_for_a_client_that_is_gone(world: World) -> None:
    connection = world.connect()
    connection.send(*world.request(ApiKey.PRODUCE, SLOW))
    connection.lose()
    world.answer()
    assert not world.manual.values(SLOW)
