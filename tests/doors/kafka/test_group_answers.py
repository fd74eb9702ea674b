"""What groups answer to requests that no library sends, in every version: as Apache Kafka 4.4 does."""

from typing import Any

import pytest

from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.membership import encode_assignment, encode_subscription
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import APIS, ApiKey


class Asking:
    """Requests in a version of the test's choice."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    def __call__(self, api: ApiKey, version: int, message: dict[str, Any]) -> dict[str, Any]:
        sent = self._connection.send(api, [REQUESTS[api].encode(version, message)], version=version)
        _, frame, start = self._connection.receive(sent)
        answer: dict[str, Any] = RESPONSES[api].decode(version, frame, start)
        return answer


@pytest.fixture
def ask(raw: BrokerConnection) -> Asking:
    """A connection."""
    assert raw.request(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"], "key_type": 0})
    return Asking(raw)


@pytest.fixture
def stream(raw: BrokerConnection, stream_name: str) -> str:
    """A stream of two partitions."""
    topic = {"name": stream_name, "num_partitions": 2, "replication_factor": 1}
    raw.request(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 30_000})
    return stream_name


def versions(api: ApiKey) -> range:
    """Every version there is."""
    return range(APIS[api].low, APIS[api].high + 1)


def commit(ask: Asking, version: int, stream: str, group: str, member: str = "", generation: int = -1) -> list[int]:
    """Commit to two partitions of which one is not there; the error of each."""
    partitions = [{"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in (0, 7)]
    message = {
        "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member,
        "topics": [{"name": stream, "partitions": partitions}],
    }  # fmt: skip
    answer = ask(ApiKey.OFFSET_COMMIT, version, message)
    return [one["error_code"] for one in answer["topics"][0]["partitions"]]


def join(
    ask: Asking, version: int, group: str, member: str = "", instance: str | None = None, *,
    session_ms: int = 30_000, protocol: str = "consumer",
) -> dict[str, Any]:  # fmt: skip
    """Ask to join."""
    message = {
        "group_id": group, "session_timeout_ms": session_ms, "rebalance_timeout_ms": 30_000, "member_id": member,
        "group_instance_id": instance, "protocol_type": protocol,
        "protocols": [{"name": "range", "metadata": encode_subscription([group.split("/", maxsplit=1)[0]])}],
    }  # fmt: skip
    return ask(ApiKey.JOIN_GROUP, version, message)


def sync(ask: Asking, version: int, group: str, member: str, **named: str | None) -> int:
    """Ask for the assignment, with all that a leader brings; the error."""
    assignment = {"member_id": member, "assignment": encode_assignment({group.split("/", maxsplit=1)[0]: [0, 1]})}
    message = {"group_id": group, "generation_id": 1, "member_id": member, "assignments": [assignment], **named}
    error: int = ask(ApiKey.SYNC_GROUP, version, message)["error_code"]
    return error


def stable(ask: Asking, group: str) -> str:
    """A group with one member in its first generation; the member's id."""
    member: str = join(ask, 3, group)["member_id"]
    assert sync(ask, 3, group, member) == ErrorCode.NONE
    return member


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_who_commits_what(ask: Asking, stream: str, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(ask, version, stream, f"{stream}/simple") == [ErrorCode.NONE, unknown]
    gone = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert commit(ask, version, stream, f"{stream}/none", "m", 3) == [gone, unknown]
    group = f"{stream}/{version}"
    member = stable(ask, group)
    assert commit(ask, version, stream, group, member, 1) == [ErrorCode.NONE, unknown]
    assert commit(ask, version, stream, group, member, 2) == [ErrorCode.ILLEGAL_GENERATION, unknown]
    assert commit(ask, version, stream, group, "who", 1) == [ErrorCode.UNKNOWN_MEMBER_ID, unknown]
    assert commit(ask, version, stream, group) == [ErrorCode.UNKNOWN_MEMBER_ID, unknown]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offsets_of_one_and_of_several_groups(ask: Asking, stream: str, version: int) -> None:
    commit(ask, 2, stream, stream)
    topics = [{"name": stream, "partition_indexes": [0, 1]}]
    wishes = [
        {"group_id": stream, "member_id": None, "member_epoch": -1, "topics": topics},
        {"group_id": f"{stream}/no", "member_id": "m", "member_epoch": 3, "topics": topics},
        {"group_id": stream, "member_id": None, "member_epoch": -1, "topics": None},
    ]
    answer = ask(ApiKey.OFFSET_FETCH, version, {"group_id": stream, "topics": topics, "groups": wishes})
    groups = answer["groups"] if version >= 8 else [answer]
    found = [
        [(one["partition_index"], one["committed_offset"]) for topic in group["topics"] for one in topic["partitions"]]
        for group in groups
    ]
    assert found == ([[(0, 5), (1, -1)], [(0, -1), (1, -1)], [(0, 5)]] if version >= 8 else [[(0, 5), (1, -1)]])
    assert all(group["error_code"] == ErrorCode.NONE for group in groups)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_members_join_in_one_step_or_two(ask: Asking, stream: str, version: int) -> None:
    group = f"{stream}/{version}"
    joined = join(ask, version, group)
    assert joined["member_id"].startswith("raw-")
    if version >= 4:
        assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        joined = join(ask, version, group, joined["member_id"])
    assert (joined["error_code"], joined["generation_id"]) == (ErrorCode.NONE, 1)
    assert joined["leader"] == joined["member_id"]
    assert join(ask, version, group, "who")["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_group_id_that_share_consumers_have(ask: Asking, raw: BrokerConnection, stream: str, version: int) -> None:
    """No classic member joins, nobody commits to it, and there are no offsets to delete."""
    assert raw.request(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"], "key_type": 2})
    group = f"{stream}/{version}"
    beat = {"group_id": group, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [stream]}
    assert ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, beat)["error_code"] == ErrorCode.NONE
    refused = join(ask, version, group, "who")
    assert (refused["error_code"], refused["member_id"]) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert join(ask, version, group, "who", session_ms=1)["error_code"] == ErrorCode.INVALID_SESSION_TIMEOUT
    assert commit(ask, 9, stream, group)[0] == ErrorCode.GROUP_ID_NOT_FOUND
    deleted = ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": []})
    assert deleted["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_sync_of_version_5_names_its_protocol(ask: Asking, stream: str) -> None:
    member = stable(ask, stream)
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    assert sync(ask, 5, stream, member, **names) == ErrorCode.NONE
    assert sync(ask, 4, stream, member) == ErrorCode.NONE
    for wrong in ({"protocol_name": "other"}, {"protocol_name": None}, {"protocol_type": None}):
        assert sync(ask, 5, stream, member, **{**names, **wrong}) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_who_leaves_what_is_not_there(ask: Asking, stream: str, version: int) -> None:
    message = {"group_id": stream, "member_id": "m", "members": [{"member_id": "m"}, {"member_id": "n"}]}
    answer = ask(ApiKey.LEAVE_GROUP, version, message)
    if version >= 3:
        assert answer["error_code"] == ErrorCode.NONE
        assert [one["error_code"] for one in answer["members"]] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    else:
        assert answer["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_by_state_and_kind(ask: Asking, stream: str, version: int) -> None:
    commit(ask, 2, stream, f"{stream}/empty")
    stable(ask, f"{stream}/stable")

    def listed(**filters: list[str]) -> set[str]:
        found = ask(ApiKey.LIST_GROUPS, version, filters)["groups"]
        return {one["group_id"].removeprefix(f"{stream}/") for one in found if one["group_id"].startswith(stream)}

    assert listed() == {"empty", "stable"}
    if version >= 4:
        assert listed(states_filter=["EMPTY"]) == {"empty"}
        assert listed(states_filter=["nonsense"]) == set()
    if version >= 5:
        assert listed(types_filter=["Classic"], states_filter=["stable"]) == {"stable"}
        assert listed(types_filter=["consumer"]) == set()


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_a_group_that_assigns_shows_no_protocol_yet(ask: Asking, stream: str, version: int) -> None:
    def described() -> dict[str, Any]:
        groups: list[dict[str, Any]] = ask(ApiKey.DESCRIBE_GROUPS, version, {"groups": [stream, f"{stream}/no"]})[
            "groups"
        ]
        assert (groups[1]["group_state"], groups[1]["error_code"]) == ("Dead", ErrorCode.NONE)
        return groups[0]

    member = join(ask, 3, stream)["member_id"]
    found = described()
    assert (found["group_state"], found["protocol_data"]) == ("CompletingRebalance", "")
    assert found["members"][0]["member_metadata"] == b""
    sync(ask, 3, stream, member)
    found = described()
    assert (found["group_state"], found["protocol_data"]) == ("Stable", "range")
    assert found["members"][0]["member_metadata"] == encode_subscription([stream])


def test_groups_that_cannot_be_deleted(ask: Asking, stream: str) -> None:
    stable(ask, stream)
    for version in versions(ApiKey.DELETE_GROUPS):
        results = ask(ApiKey.DELETE_GROUPS, version, {"groups_names": [stream, f"{stream}/no", ""]})["results"]
        assert [one["error_code"] for one in results] == [
            ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND,
        ]  # fmt: skip


def test_offsets_are_deleted_where_nobody_reads(ask: Asking, stream: str) -> None:
    other = f"{stream}-other"
    topic = {"name": other, "num_partitions": 1, "replication_factor": 1}
    ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000})
    member = stable(ask, stream)
    commit(ask, 2, stream, stream, member, 1)
    commit(ask, 2, other, stream, member, 1)

    def delete(group: str, *names: str) -> list[int]:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]
        answer = ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": topics})
        codes = [topic["partitions"][0]["error_code"] for topic in answer["topics"]]
        return codes or [answer["error_code"]]

    assert delete(stream, stream, other, "nothing") == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert delete(f"{stream}/no", stream) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert delete("", stream) == [ErrorCode.INVALID_GROUP_ID]
    assert join(ask, 3, f"{stream}/connect", protocol="connect")["error_code"] == ErrorCode.NONE
    assert delete(f"{stream}/connect") == [ErrorCode.NON_EMPTY_GROUP]
    ask(ApiKey.LEAVE_GROUP, 0, {"group_id": stream, "member_id": member})
    assert delete(stream, stream) == [ErrorCode.NONE]
    found = ask(ApiKey.OFFSET_FETCH, 5, {"group_id": stream, "topics": None})
    assert found["topics"] == []
