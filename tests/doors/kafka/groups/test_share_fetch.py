"""Share groups at the Kafka door, request by request."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from tests.doors.kafka.sharing import ACCEPT, GAP, REJECT, RELEASE, RENEW, Given, RawShareConsumer
from tests.raw import batch_of, produce_bytes

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

Member = Callable[[str], RawShareConsumer]


@pytest.fixture
def member(node: NodeProcess, stream_name: str) -> Iterator[Member]:
    """Makes members of one group, which begins at the start of the test's stream; none has joined."""
    made: list[RawShareConsumer] = []

    def make(member_id: str) -> RawShareConsumer:
        made.append(RawShareConsumer(node, f"{stream_name}-group", stream_name, member_id))
        if len(made) == 1:
            made[0].configure(share_auto_offset_reset="earliest")
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


def write(consumer: RawShareConsumer, *values: bytes, partition: int = 0) -> None:
    assert produce_bytes(consumer.connection, consumer.stream, batch_of(*values), partition=partition).error_code == 0


def test_two_consumers_share_a_partition(member: Member) -> None:
    one, two = member("one"), member("two")
    assert one.join() == [0]
    assert two.join() == [0]
    write(one, b"a", b"b")
    write(one, b"c")
    assert [got[1:] for got in one.fetch(most=1)] == [(0, 1, b"a"), (1, 1, b"b")]
    assert [got[1:] for got in two.fetch()] == [(2, 1, b"c")]
    assert one.say(Given(0, 1, [ACCEPT, RELEASE])) == {0: 0}
    assert [got[1:] for got in two.fetch()] == [(1, 2, b"b")]
    assert two.say(Given(1, 2, [ACCEPT])) == {0: 0}
    assert one.fetch() == []


def test_acknowledgements_may_come_with_a_fetch(member: Member) -> None:
    one = member("one")
    one.join()
    write(one, b"a", b"b", b"c")
    one.fetch()
    assert [got[1:] for got in one.fetch(Given(0, 2, [REJECT, RELEASE, GAP]), wait_ms=10_000)] == [(1, 2, b"b")]
    partition = one.last["responses"][0]["partitions"][0]
    assert (partition["error_code"], partition["acknowledge_error_code"]) == (0, 0)
    assert one.last["acquisition_lock_timeout_ms"] == 30_000


def test_a_fetch_waits_for_records_and_for_released_ones(member: Member) -> None:
    one, two = member("one"), member("two")
    one.join()
    two.join()
    other = member("three")
    one.fetch()
    two.fetch()
    sent = one.begin_fetch(wait_ms=20_000)
    write(other, b"a")
    assert [got[1:] for got in one.end_fetch(sent)] == [(0, 1, b"a")]
    sent = two.begin_fetch(wait_ms=20_000)
    one.say(Given(0, 0, [RELEASE]))
    assert [got[1:] for got in two.end_fetch(sent)] == [(0, 2, b"a")]


def test_a_lost_connection_gives_back_what_it_held(member: Member) -> None:
    one, two = member("one"), member("two")
    one.join()
    two.join()
    write(one, b"a")
    assert one.fetch()
    assert two.fetch() == []
    sent = two.begin_fetch(wait_ms=20_000)
    one.connection.close()
    assert [got[1:] for got in two.end_fetch(sent)] == [(0, 2, b"a")]


def test_a_session_that_is_closed_gives_back_what_it_held(member: Member) -> None:
    one, two = member("one"), member("two")
    one.join()
    two.join()
    write(one, b"a", b"b")
    one.fetch()
    assert one.say(Given(0, 0, [ACCEPT]), share_session_epoch=-1) == {0: 0}
    assert [got[1:] for got in two.fetch()] == [(1, 2, b"b")]
    one.session = 5
    assert one.refused(ApiKey.SHARE_FETCH) == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_requests_of_a_session_come_in_turn(member: Member) -> None:
    one = member("one")
    one.join()
    write(one, b"a")
    assert one.refused(ApiKey.SHARE_ACKNOWLEDGE) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.refused(ApiKey.SHARE_FETCH, Given(0, 0, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    one.session = 1
    assert one.refused(ApiKey.SHARE_FETCH) == ErrorCode.SHARE_SESSION_NOT_FOUND
    one.session = 0
    one.fetch()
    one.session = 3
    assert one.refused(ApiKey.SHARE_FETCH) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.refused(ApiKey.SHARE_ACKNOWLEDGE, group_id=None) == ErrorCode.INVALID_REQUEST
    one.session = 1
    one.fetch()


def test_what_cannot_be_said(member: Member) -> None:
    one, two = member("one"), member("two")
    one.join()
    two.join()
    write(one, b"a", b"b", b"c")
    one.fetch()
    two.fetch()
    for given in (
        [Given(1, 0, [ACCEPT])],
        [Given(0, 2, [ACCEPT, ACCEPT])],
        [Given(0, 0, [])],
        [Given(0, 0, [9])],
        [Given(1, 1, [ACCEPT]), Given(0, 0, [ACCEPT])],
        [Given(0, 0, [RENEW])],
    ):
        assert one.say(*given) == {0: ErrorCode.INVALID_REQUEST}
    assert two.say(Given(0, 0, [ACCEPT])) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert one.say(Given(0, 7, [ACCEPT])) == {0: ErrorCode.INVALID_REQUEST}
    assert one.say(Given(0, 0, [RENEW]), is_renew_ack=True) == {0: 0}
    assert one.say(Given(0, 2, [ACCEPT])) == {0: 0}


def test_partitions_that_are_not_there(member: Member) -> None:
    one = member("one")
    one.join()
    one.fetch(partitions=[0, 7])
    found = {part["partition_index"]: part["error_code"] for part in one.last["responses"][0]["partitions"]}
    assert found == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    stranger = member("two")
    stranger.group = "nobody's"
    stranger.fetch()
    assert stranger.last["responses"][0]["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stranger.session = 0
    stranger.topic_id = stranger.topic_id.__class__(int=5)
    stranger.fetch()
    assert stranger.last["responses"][0]["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_members_in_their_epochs(member: Member) -> None:
    one, two = member("one"), member("two")
    assert one.beat(epoch=3)["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert one.beat(epoch=0)["error_code"] == ErrorCode.INVALID_REQUEST
    assert one.beat(epoch=-2)["error_code"] == ErrorCode.INVALID_REQUEST
    assert one.join() == [0]
    answer = one.beat()
    assert (answer["member_epoch"], answer["heartbeat_interval_ms"], answer["assignment"]) == (1, 5000, None)
    assert two.beat(epoch=1)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.beat(epoch=9)["error_code"] == ErrorCode.FENCED_MEMBER_EPOCH
    two.join()
    assert one.beat()["member_epoch"] == 2
    two.leave()
    assert one.beat()["member_epoch"] == 3


def described(consumer: RawShareConsumer) -> Message:
    answer = consumer.connection.request(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [consumer.group]})
    group: Message = answer["groups"][0]
    return group


def listed(consumer: RawShareConsumer, kind: str) -> list[tuple[str, str]]:
    """The type and state of the consumer's own group where groups of ``kind`` are listed: the broker has others."""
    answer = consumer.connection.request(ApiKey.LIST_GROUPS, {"types_filter": [kind]})
    return [
        (found["group_type"], found["group_state"]) for found in answer["groups"] if found["group_id"] == consumer.group
    ]


def test_a_group_is_described_and_listed(member: Member) -> None:
    one = member("one")
    assert described(one)["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    one.join()
    group = described(one)
    assert (group["group_state"], group["assignor_name"], group["group_epoch"]) == ("Stable", "simple", 1)
    assert group["members"][0]["subscribed_topic_names"] == [one.stream]
    assert group["members"][0]["assignment"]["topic_partitions"] == [
        {"topic_id": one.topic_id, "topic_name": one.stream, "partitions": [0]}
    ]
    assert listed(one, "share") == [("share", "Stable")]
    assert listed(one, "consumer") == []
    deleted = one.connection.request(ApiKey.DELETE_GROUPS, {"groups_names": [one.group]})
    assert deleted["results"][0]["error_code"] == ErrorCode.NON_EMPTY_GROUP
    one.beat(epoch=-1)
    assert described(one)["group_state"] == "Empty"
    deleted = one.connection.request(ApiKey.DELETE_GROUPS, {"groups_names": [one.group]})
    assert deleted["results"][0]["error_code"] == 0
    assert described(one)["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_members_read_is_described_without_streams_that_are_gone(member: Member) -> None:
    one = member("one")
    one.join()
    one.connection.request(
        ApiKey.DELETE_TOPICS, {"topics": [{"name": one.stream}], "topic_names": [one.stream], "timeout_ms": 60_000}
    )
    assert [found["assignment"]["topic_partitions"] for found in described(one)["members"]] == [[]]
    one.leave()


def test_where_a_group_is_and_where_it_is_to_begin(member: Member) -> None:
    one = member("one")
    one.join()
    write(one, b"a", b"b", b"c")
    one.fetch()
    one.say(Given(0, 1, [ACCEPT]))

    def offsets(topics: list[Message] | None) -> Message:
        asked = {"groups": [{"group_id": one.group, "topics": topics}]}
        group: Message = one.connection.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, asked)["groups"][0]
        return group

    here = {"partition_index": 0, "start_offset": 2, "lag": 1, "error_code": 0}
    assert offsets(None)["topics"][0]["partitions"][0].items() >= here.items()
    asked = [{"topic_name": one.stream, "partitions": [0, 5]}, {"topic_name": "none", "partitions": [0]}]
    found = [part for topic in offsets(asked)["topics"] for part in topic["partitions"]]
    assert [(part["error_code"], part["start_offset"]) for part in found] == [(0, 2), (0, -1), (0, -1)]

    def alter() -> Message:
        starts = [{"partition_index": 0, "start_offset": 1}, {"partition_index": 5, "start_offset": 1}]
        return one.connection.request(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            {"group_id": one.group, "topics": [{"topic_name": one.stream, "partitions": starts}]},
        )

    assert alter()["error_code"] == ErrorCode.NON_EMPTY_GROUP
    one.say(share_session_epoch=-1)
    one.beat(epoch=-1)
    codes = [part["error_code"] for part in alter()["responses"][0]["partitions"]]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    one.join()
    assert [got[1:3] for got in one.fetch()] == [(1, 1), (2, 1)]
    one.say(share_session_epoch=-1)
    one.beat(epoch=-1)
    answer = one.connection.request(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        {"group_id": one.group, "topics": [{"topic_name": one.stream}, {"topic_name": "none"}]},
    )
    assert [topic["error_code"] for topic in answer["responses"]] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets(None)["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_configs_of_a_group(member: Member) -> None:
    one = member("one")
    resource = {"resource_type": 32, "resource_name": one.group, "configuration_keys": None}

    def configs() -> dict[str, tuple[str, int]]:
        answer = one.connection.request(ApiKey.DESCRIBE_CONFIGS, {"resources": [resource], "include_synonyms": True})
        return {found["name"]: (found["value"], found["config_source"]) for found in answer["results"][0]["configs"]}

    before = configs()
    assert before["share.auto.offset.reset"] == ("earliest", 8)
    assert before["share.record.lock.duration.ms"] == ("30000", 5)
    one.configure(share_record_lock_duration_ms="20000")
    assert configs()["share.record.lock.duration.ms"] == ("20000", 8)
    with pytest.raises(AssertionError, match="15000 to 60000"):
        one.configure(share_record_lock_duration_ms="1")
    with pytest.raises(AssertionError, match="not a config of groups"):
        one.configure(share_nonsense="1")
    one.join()
    one.fetch()
    assert one.last["acquisition_lock_timeout_ms"] == 20_000


def test_a_coordinator_of_shares(member: Member) -> None:
    one = member("one")
    answer = one.connection.request(ApiKey.FIND_COORDINATOR, {"key_type": 2, "coordinator_keys": ["g:t:0"]})
    assert answer["coordinators"][0]["error_code"] == 0
    assert answer["coordinators"][0]["port"] > 0


def test_only_what_was_committed(node: NodeProcess, member: Member) -> None:
    one = member("one")
    one.configure(share_isolation_level="read_committed")
    one.join()
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": one.group, "linger.ms": 0})
    producer.init_transactions(30)
    for value, committed in ((b"aborted", False), (b"committed", True), (b"also aborted", False)):
        producer.begin_transaction()
        producer.produce(one.stream, value)
        assert producer.flush(60) == 0
        assert [got.value for got in one.fetch()] == []
        if committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        assert [got.value for got in one.fetch()] == ([value] if committed else [])
    write(one, b"plain")
    got = one.fetch()
    assert [found.value for found in got] == [b"plain"]
    assert one.say(Given(2, 2, [ACCEPT]), Given(got[0].offset, got[0].offset, [ACCEPT])) == {0: 0}
    offsets = one.connection.request(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": one.group, "topics": None}]}
    )
    # What was aborted, and the markers, are done with: nothing is in the way of the start.
    assert offsets["groups"][0]["topics"][0]["partitions"][0]["start_offset"] == got[0].offset + 1


def test_a_quota_is_kept_by_waiting_not_by_taking_back(node: NodeProcess, member: Member) -> None:
    one = member("one")
    one.join()
    entity = [{"entity_type": "client-id", "entity_name": "raw-share"}]
    changed = one.connection.request(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {"entries": [{"entity": entity, "ops": [{"key": "consumer_byte_rate", "value": 2000.0}]}]},
    )
    assert changed["entries"][0]["error_code"] == 0
    for _ in range(4):
        write(one, bytes(8000))
    slow = RawShareConsumer(node, one.group, one.stream, "two", client_id="raw-share")
    slow.join()
    got = [found.offset for found in slow.fetch()]
    assert 0 < len(got) < 4
    waited = slow.last["throttle_time_ms"]
    got += [found.offset for found in slow.fetch(wait_ms=1000)]
    assert got == list(range(len(got)))
    assert max(waited, slow.last["throttle_time_ms"]) > 0
    slow.connection.close()
