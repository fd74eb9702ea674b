"""What a table of faults does to requests, and refusals of every API and version as other implementations read them."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.kafka.oracles import through_kio, written_by_kafka_python
from tests.codec.kafka.specification import BY_HAND, drawn, every_message
from tests.examples import examples

from duramen.base.deadlines import Deadlines
from duramen.base.metrics import Counter
from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.header import encode_request, has_response_tags, read_request_header
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import Api, ApiKey
from duramen.doors.kafka.connection.error_responses import refuse
from duramen.doors.kafka.connection.fault_injection import EXEMPT, Injector
from duramen.doors.kafka.connection.faults import Fault, RequestFaults
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.fetch_sessions import FetchSessions
from duramen.doors.kafka.request.metrics import error_codes
from duramen.doors.kafka.request.share_sessions import ShareSessions
from duramen.service.admission import Service
from duramen.sim.broker import ManualBroker
from duramen.sim.machine.clock import ManualClock

REQUESTED = [(api, version) for api, kind, version in every_message() if kind == "request"]
CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


# What is asked about in which array, where its answers are, and what names them.
ENTRIES = {
    ApiKey.ALTER_CONFIGS: [("resources", "responses", "resource_name")],
    ApiKey.CREATE_PARTITIONS: [("topics", "results", "name")],
    ApiKey.CREATE_TOPICS: [("topics", "topics", "name")],
    ApiKey.DELETE_GROUPS: [("groups_names", "results", "group_id")],
    ApiKey.DELETE_TOPICS: [("topic_names", "responses", "name"), ("topics", "responses", "topic_id")],
    ApiKey.DESCRIBE_CONFIGS: [("resources", "results", "resource_name")],
    ApiKey.DESCRIBE_GROUPS: [("groups", "groups", "group_id")],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [("topics", "topics", "name")],
    ApiKey.FIND_COORDINATOR: [("coordinator_keys", "coordinators", "key")],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [("resources", "responses", "resource_name")],
    ApiKey.OFFSET_FETCH: [("groups", "groups", "group_id")],
}


class Collecting:
    """A connection that keeps its answers."""

    peer_host = "/127.0.0.1"

    def __init__(self) -> None:
        self.answers: list[Exchange] = []
        self.weight = 0

    def weighed(self, size: int) -> None:
        self.weight += size

    def answer_ready(self, exchange: Exchange) -> None:
        self.answers.append(exchange)

    def hold(self) -> None:
        """Nothing comes behind it."""

    def go_on(self, action: Callable[[], None]) -> None:
        action()


@pytest.fixture(scope="module")
def context() -> Context:
    manual = ManualBroker()
    manual.create("there", 2)
    shares = ShareSessions(manual.broker.sharing, Counter(), most=1, most_partitions=1)
    return Context(
        manual.broker,
        Service(manual.broker),
        "cluster",
        "host",
        9092,
        shares,
        FetchSessions(10, 100, itertools.count(1).__next__),
        1 << 20,
    )


def exchange_of(api: ApiKey, version: int, body: bytes, client_id: str = "test") -> tuple[Exchange, Collecting]:
    """A request that came, and where its answer goes."""
    channel = Collecting()
    frame = memoryview(encode_request(api, version, 7, client_id, body))[4:]
    return Exchange(channel, read_request_header(frame), frame, len(frame), 0.0), channel


def answered(exchange: Exchange) -> bytes:
    """The body of an answer."""
    header = exchange.header
    assert isinstance(exchange.answer, bytes)
    assert exchange.answer[4:8] == (7).to_bytes(4, "big")
    return exchange.answer[9 if has_response_tags(header.api_key, header.version) else 8 :]


@pytest.mark.parametrize(
    ("api", "version"), REQUESTED, ids=[f"{api.key.name.lower()} {version}" for api, version in REQUESTED]
)
@settings(max_examples=examples(4))
@given(data=st.data())
def test_a_refusal_is_what_others_expect(context: Context, api: Api, version: int, data: st.DataObject) -> None:
    message = data.draw(drawn(api, "request", version))
    if api.key is ApiKey.PRODUCE:
        message["acks"] = data.draw(st.sampled_from([1, -1]))
    exchange, _ = exchange_of(
        api.key, version, written_by_kafka_python(api.key, "request", version, message)
        if api.key in BY_HAND else REQUESTS[api.key].encode(version, message),
    )  # fmt: skip
    refuse(context, exchange, CODE)
    body = answered(exchange)
    if api.key is not ApiKey.API_VERSIONS or version == 0:
        assert through_kio(api.key, "response", version, body) == body
    asked = [part for topic in message.get("topics") or () for part in topic.get("partitions", ())]
    if api.key in BY_HAND:
        assert exchange.errors == {CODE}
        check_by_hand(api.key, version, body, message)
        return
    answer = RESPONSES[api.key].decode(version, body)
    assert error_codes(answer) <= {CODE}
    assert all(part["error_code"] == CODE for topic in answer.get("topics", ()) for part in topic.get("partitions", ()))
    assert exchange.errors == {CODE} or not every_error(answer)
    if api.key in (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.DELETE_RECORDS):
        found = [part["partition_index"] for topic in answer["topics"] for part in topic["partitions"]]
        assert found == [part["partition_index"] for part in asked]
    for wanted, places, key in ENTRIES.get(api.key, ()):
        for thing, entry in zip(message.get(wanted) or (), answer[places] if message.get(wanted) else (), strict=True):
            assert entry[key] == (thing[key] if isinstance(thing, dict) else thing)
            assert entry["error_code"] == CODE


def every_error(answer: dict[str, Any]) -> list[int]:
    """Every error code in an answer, 0 too."""
    found = [answer["error_code"]] if "error_code" in answer else []
    for value in answer.values():
        for inner in value if isinstance(value, list) else ():
            found += every_error(inner) if isinstance(inner, dict) else []
    return found


def check_by_hand(api: ApiKey, version: int, body: bytes, message: dict[str, Any]) -> None:
    """Produce and Fetch have an error for every partition that was asked about."""
    if api is ApiKey.PRODUCE and version >= 9:
        places = produce.decode_response(version, memoryview(body), 0)
        codes = [part.error_code for topic in places for part in topic.partitions]
        assert codes == [CODE for topic in message["topic_data"] for _ in topic["partition_data"]]
    if api is ApiKey.FETCH and version >= 13:
        code, parts = fetch.decode_response(version, memoryview(body), 0)
        assert code == 0
        assert [part.error_code for part in parts] == [CODE for one in message["topics"] for _ in one["partitions"]]


def test_metadata_still_says_where_the_broker_is(context: Context) -> None:
    exchange, _ = exchange_of(ApiKey.METADATA, 12, REQUESTS[ApiKey.METADATA].encode(12, {"topics": None}))
    refuse(context, exchange, ErrorCode.LEADER_NOT_AVAILABLE)
    answer = RESPONSES[ApiKey.METADATA].decode(12, answered(exchange))
    assert [(one["host"], one["port"]) for one in answer["brokers"]] == [("host", 9092)]
    assert ("there", ErrorCode.LEADER_NOT_AVAILABLE) in [(one["name"], one["error_code"]) for one in answer["topics"]]


def test_a_fetch_session_is_refused_as_a_whole(context: Context) -> None:
    body = written_by_kafka_python(ApiKey.FETCH, "request", 12, {"topics": []})
    exchange, _ = exchange_of(ApiKey.FETCH, 12, body)
    refuse(context, exchange, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert answered(exchange)[4:6] == (70).to_bytes(2, "big")


def test_a_table_counts_what_it_gave() -> None:
    faults = RequestFaults()
    faults.error(ApiKey.PRODUCE, CODE, 2)
    faults.error(ApiKey.FETCH, CODE, None)
    faults.delay(ApiKey.PRODUCE, 5)
    assert [faults.take(ApiKey.PRODUCE) for _ in range(3)] == [Fault(5, CODE), Fault(5, CODE), Fault(5, ErrorCode.NONE)]
    assert {faults.take(ApiKey.FETCH) for _ in range(9)} == {Fault(0, CODE)}
    faults.clear()
    assert faults.take(ApiKey.FETCH) == faults.take(ApiKey.PRODUCE) == Fault(0, ErrorCode.NONE)


def test_a_late_answer_is_the_same_answer_later(context: Context) -> None:
    faults, clock, deadlines = RequestFaults(), ManualClock(), Deadlines()
    injector = Injector(faults, clock, deadlines)
    faults.delay(ApiKey.HEARTBEAT, 50)
    body = REQUESTS[ApiKey.HEARTBEAT].encode(4, {"group_id": "g", "generation_id": 1, "member_id": "m"})
    done: list[Exchange] = []

    def heartbeat(_: Context, exchange: Exchange) -> None:
        done.append(exchange)
        exchange.reply({"error_code": ErrorCode.UNKNOWN_MEMBER_ID})

    exchange, channel = exchange_of(ApiKey.HEARTBEAT, 4, body)
    injector.handle(heartbeat, context, exchange)
    assert len(done) == 1
    assert not exchange.answered
    clock.advance(49)
    deadlines.fire(clock.monotonic_ms())
    assert channel.answers == []
    clock.advance(1)
    deadlines.fire(clock.monotonic_ms())
    assert channel.answers == [exchange]
    assert exchange.errors == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert RESPONSES[ApiKey.HEARTBEAT].decode(4, answered(exchange))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_eyes_of_the_test_see_what_is_there(context: Context) -> None:
    faults = RequestFaults()
    faults.error(ApiKey.HEARTBEAT, CODE, None)
    body = REQUESTS[ApiKey.HEARTBEAT].encode(4, {"group_id": "g", "generation_id": 1, "member_id": "m"})
    exchange, _ = exchange_of(ApiKey.HEARTBEAT, 4, body, EXEMPT)
    handled: list[Exchange] = []
    injector = Injector(faults, ManualClock(), Deadlines())
    injector.handle(lambda _, one: handled.append(one), context, exchange)
    assert handled == [exchange]
