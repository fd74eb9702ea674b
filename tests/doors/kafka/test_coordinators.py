"""What a node of a cluster answers to those who ask it about a group that another one coordinates, in every version."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from tests.broker.several import Several
from tests.doors.kafka.by_hand import ByHand, ManualConnection

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.doors.kafka.request.metrics import error_codes
from duramen.groups.records import partition_for
from duramen.metadata.decisions import Definition
from duramen.sim.broker import CallbackResult

GROUP: Final = "g"
HOME: Final = 2
"""Who coordinates the group; node 1 leads the other partition, node 3 none."""

_MEMBER: Final = {"group_id": GROUP, "member_id": "m", "generation_id": 1, "protocol_type": "p", "protocol_name": "p"}
_TOPIC: Final = {"name": "a", "partitions": [{"partition_index": 0, "committed_offset": 1}], "partition_indexes": [0]}
_PROTOCOL: Final = {"name": "range", "metadata": b""}

ASKED: Final[Mapping[ApiKey, Mapping[str, Any]]] = {
    ApiKey.OFFSET_COMMIT: {"group_id": GROUP, "member_id": "", "generation_id_or_member_epoch": -1, "topics": [_TOPIC]},
    ApiKey.OFFSET_FETCH: {
        "group_id": GROUP, "topics": [_TOPIC], "groups": [{"group_id": GROUP, "member_id": None, "topics": None}],
    },
    ApiKey.JOIN_GROUP: {
        "group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [_PROTOCOL],
    },
    ApiKey.SYNC_GROUP: {**_MEMBER, "assignments": []},
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: {**_MEMBER, "members": [{"member_id": "m"}]},
    ApiKey.DESCRIBE_GROUPS: {"groups": [GROUP]},
    ApiKey.DELETE_GROUPS: {"groups_names": [GROUP]},
    ApiKey.OFFSET_DELETE: {"group_id": GROUP, "topics": [_TOPIC]},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": GROUP, "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": [],
        "subscribed_topic_names": ["a"],
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [GROUP]},
}  # fmt: skip
CASES: Final = [(api, version) for api in ASKED for version in range(APIS[api].low, APIS[api].high + 1)]


@pytest.fixture(scope="module")
def several() -> Several:
    """Three brokers with a stream `a` and one for offsets."""
    several = Several()
    several.ensure_offsets()
    created: CallbackResult[None] = CallbackResult()
    several.broker(1).create_stream(Definition("a", 1), created)
    several.settle()
    return several


def ask(several: Several, node: int, api: ApiKey, version: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """What a node answers."""
    client = ByHand(manual=several.hands[node]).connect()
    client.send(api, version, REQUESTS[api].encode(version, message))
    several.advance(500)
    return _answer(client, api, version)


def _answer(client: ManualConnection, api: ApiKey, version: int) -> dict[str, Any]:
    found = client.answer(api, version)
    assert found is not None
    frame, start = found
    return dict(RESPONSES[api].decode(version, bytes(frame[start:])))


@pytest.mark.parametrize(("api", "version"), CASES)
@pytest.mark.parametrize("node", [1, 3])
def test_others_say_who_they_are_not(several: Several, node: int, api: ApiKey, version: int) -> None:
    assert error_codes(ask(several, node, api, version, ASKED[api])) == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize(("api", "version"), [case for case in CASES if case[0] is not ApiKey.JOIN_GROUP])
def test_the_coordinator_says_something_else(several: Several, api: ApiKey, version: int) -> None:
    assert ErrorCode.NOT_COORDINATOR not in error_codes(ask(several, HOME, api, version, ASKED[api]))


@pytest.mark.parametrize(("api", "version"), CASES)
def test_who_takes_a_group_in_says_so(api: ApiKey, version: int) -> None:
    several = Several()
    several.ensure_offsets()
    several.broker(1).create_stream(Definition("a", 1), lambda _: None)
    several.settle()
    # A record that only one more node has: nobody knows yet whether it is committed.
    several.cut.add(1)
    ask_soon = ByHand(manual=several.hands[HOME]).connect()
    ask_soon.send(ApiKey.OFFSET_COMMIT, 8, REQUESTS[ApiKey.OFFSET_COMMIT].encode(8, ASKED[ApiKey.OFFSET_COMMIT]))
    several.advance(500)
    several.elect(several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), 3)
    several.settle()
    assert error_codes(ask(several, 3, api, version, ASKED[api])) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_share_groups_are_coordinated_as_others_are(several: Several) -> None:
    group = next(name for name in ("s", "t", "u") if partition_for(name, 2) == partition_for(GROUP, 2))
    asked = {"group_id": group, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["a"]}
    version = APIS[ApiKey.SHARE_GROUP_HEARTBEAT].high
    for node in several.hands:
        codes = set() if node == HOME else {ErrorCode.NOT_COORDINATOR}
        assert error_codes(ask(several, node, ApiKey.SHARE_GROUP_HEARTBEAT, version, asked)) == codes


def test_who_does_not_lead_says_who_does(several: Several) -> None:
    place = several.place("a")
    version = APIS[ApiKey.SHARE_FETCH].high
    leader = several.partitions[place].leader
    for node in several.hands:
        wanted = [{"topic_id": place.stream_id, "partitions": [{"partition_index": 0}]}]
        asked = {"group_id": GROUP, "member_id": "m", "max_bytes": 1000, "max_records": 10, "topics": wanted}
        (topic,) = ask(several, node, ApiKey.SHARE_FETCH, version, asked)["responses"]
        (found,) = topic["partitions"]
        if node != leader:
            assert found["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert found["current_leader"] == {"leader_id": leader, "leader_epoch": 1}
