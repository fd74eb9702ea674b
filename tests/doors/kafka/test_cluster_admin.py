"""The cluster behind the Kafka door: what is asked of its controller and what is answered, in every version."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.codec.kafka.oracles import through_kio
from tests.controller.active.scripted import (
    DIRECTORIES,
    STREAM,
    Operated,
    Scripted,
    Scripting,
    described,
    office_of,
    state_of,
)
from tests.doors.kafka.by_hand import ByHand, ManualConnection

from duramen.base.errors import (
    ElectionNotNeeded,
    LeaderUnavailable,
    NodeNotFound,
    NotController,
    PartitionsInvalid,
    ReassignmentNotFound,
    ReplicaAssignmentInvalid,
    RequestInvalid,
    VoterDuplicate,
    VoterNotFound,
    VotersUnsettled,
)
from duramen.broker.control import requests
from duramen.broker.control.responses import Done, Observed
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.raft.voters import ReplicaId, Voter

PARTITIONS = (
    PartitionState((1, 2), (1, 2), 1, 3, 3),
    PartitionState((2, 1), (1, 2), 1, 4, 4),
    PartitionState((1, 2, 3), (1, 2), 1, 5, 5, adding=(3,), removing=(2,)),
    PartitionState((3, 2), (), None, 6, 6),
)
PLACES = [PartitionId(STREAM, index) for index in range(len(PARTITIONS))]
OBSERVED = Observed(*described()[:5], tuple(described().endpoints))


class Cluster:
    """A node's door, and a controller that answers as the test says."""

    def __init__(self, script: Scripting = lambda _: Done()) -> None:
        by_hand = ByHand()
        cluster_admin, self.asking = office_of(script, state_of(*PARTITIONS))
        broker = by_hand.manual.broker
        membership: Any = Operated(broker.membership, cluster_admin)
        broker.membership = membership
        self.client: ManualConnection = by_hand.connect()

    def ask(self, api: ApiKey, version: int, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is answered; another implementation reads it too."""
        self.client.send(api, version, REQUESTS[api].encode(version, message))
        answer = self.client.answer(api, version)
        assert answer is not None
        frame, start = answer
        body = bytes(frame[start:])
        assert through_kio(api, "response", version, body) == body
        return dict(RESPONSES[api].decode(version, body))

    @property
    def controller(self) -> Scripted:
        return self.asking


def versions(api: ApiKey) -> range:
    return range(APIS[api].low, APIS[api].high + 1)


def codes(entries: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    return [(entry.get("partition_id", entry.get("partition_index")), entry["error_code"]) for entry in entries]


# -- leaders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_elections(version: int) -> None:
    errors = {0: ElectionNotNeeded("it leads"), 1: None, 2: LeaderUnavailable("not in sync"), 3: PartitionsInvalid("x")}

    def script(request: Any) -> Any:
        return errors[request.place.partition] or Done()

    cluster = Cluster(script)
    asked = {"topic_partitions": [{"topic": "a", "partitions": [0, 1, 2, 3, 9]}, {"topic": "b", "partitions": [0]}]}
    answer = cluster.ask(ApiKey.ELECT_LEADERS, version, asked | {"timeout_ms": 1234})
    assert answer["error_code"] == 0
    first, second = answer["replica_election_results"]
    assert (first["topic"], second["topic"]) == ("a", "b")
    assert codes(first["partition_result"]) == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, ErrorCode.NONE),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert first["partition_result"][0]["error_message"] == "it leads"
    assert codes(second["partition_result"]) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert cluster.controller.asked == [requests.ElectLeader(place) for place in PLACES]
    assert set(cluster.controller.within_ms) == {1234}


@pytest.mark.parametrize(("kind", "found", "code"), [
    (0, [1, 3], ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, [3], ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
])  # fmt: skip
def test_of_all_partitions_those_are_told_whose_leader_may_change(kind: int, found: list[int], code: ErrorCode) -> None:
    cluster = Cluster(lambda _: LeaderUnavailable("nobody"))
    answer = cluster.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": None})
    (topic,) = answer["replica_election_results"]
    assert codes(topic["partition_result"]) == [(index, code) for index in found]
    # Of an unclean election a replica has to say first what it has, and here none does.
    assert cluster.controller.asked == [requests.ElectLeader(PLACES[index]) for index in found if kind == 0]


def test_there_are_two_types_of_elections() -> None:
    cluster = Cluster()
    asked = {"election_type": 2, "topic_partitions": [{"topic": "a", "partitions": [0]}]}
    answer = cluster.ask(ApiKey.ELECT_LEADERS, 2, asked)
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert codes(answer["replica_election_results"][0]["partition_result"]) == [(0, ErrorCode.INVALID_REQUEST)]
    assert cluster.controller.asked == []


# -- replicas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
def test_reassignments(version: int) -> None:
    errors: dict[Any, Any] = {
        requests.Reassign(PLACES[1], (9, 1)): ReplicaAssignmentInvalid("9"),
        requests.CancelReassignment(PLACES[3]): ReassignmentNotFound("none"),
    }
    cluster = Cluster(lambda request: errors.get(request, Done()))
    wanted = [(0, [2, 1]), (1, [9, 1]), (2, None), (3, None), (0, [1, 2, 3]), (7, [1])]
    partitions = [{"partition_index": index, "replicas": replicas} for index, replicas in wanted]
    topics = [{"name": "a", "partitions": partitions}, {"name": "b", "partitions": partitions[:1]}]
    asked = {"topics": topics, "allow_replication_factor_change": version == 0}
    answer = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, asked)
    assert (answer["error_code"], answer["allow_replication_factor_change"]) == (0, version == 0)
    first, second = answer["responses"]
    resized = ErrorCode.NONE if version == 0 else ErrorCode.INVALID_REPLICATION_FACTOR
    assert codes(first["partitions"]) == [
        (0, ErrorCode.NONE), (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (2, ErrorCode.NONE),
        (3, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), (0, resized), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]  # fmt: skip
    assert codes(second["partitions"]) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("asked", [None, [{"name": "a", "partition_indexes": [0, 2, 9]}]])
def test_reassignments_under_way(asked: Any) -> None:
    answer = Cluster().ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": asked})
    moves = {"partition_index": 2, "replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [2]}
    assert (answer["error_code"], answer["topics"]) == (0, [{"name": "a", "partitions": [moves]}])


def test_other_partitions_are_not_under_way() -> None:
    asked = [{"name": "a", "partition_indexes": [0]}, {"name": "b", "partition_indexes": [2]}]
    assert Cluster().ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": asked})["topics"] == []


def test_a_request_is_about_so_many_partitions_at_most() -> None:
    cluster = Cluster()
    partitions = [{"partition_index": 0, "replicas": [1]}] * 10_001
    answer = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, {"topics": [{"name": "a", "partitions": partitions}]})
    assert (answer["error_code"], answer["responses"]) == (ErrorCode.INVALID_REQUEST, [])
    asked = {"topic_partitions": [{"topic": "a", "partitions": [0] * 10_001}]}
    answer = cluster.ask(ApiKey.ELECT_LEADERS, 2, asked)
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert cluster.controller.asked == []


# -- the quorum ---------------------------------------------------------------------------------------

METADATA = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_QUORUM))
def test_the_quorum(version: int) -> None:
    answer = Cluster(lambda _: OBSERVED).ask(ApiKey.DESCRIBE_QUORUM, version, {"topics": METADATA})
    ((partition,),) = [topic["partitions"] for topic in answer["topics"]]
    head = {name: partition[name] for name in ("leader_id", "leader_epoch", "high_watermark", "error_code")}
    assert head == {"leader_id": 1, "leader_epoch": 5, "high_watermark": 15, "error_code": 0}
    rows = [(row["replica_id"], row["log_end_offset"]) for row in partition["current_voters"]]
    assert (rows, [row["replica_id"] for row in partition["observers"]]) == ([(1, 20), (2, 17)], [3])
    second = partition["current_voters"][1]
    if version >= 1:
        assert (second["last_fetch_timestamp"], second["last_caught_up_timestamp"]) == (990, 900)
    if version >= 2:
        assert second["replica_directory_id"] == UUID(int=2)
        assert answer["nodes"] == [
            {"node_id": 1, "listeners": [{"name": "cluster", "host": "h1", "port": 9096}]},
            {"node_id": 2, "listeners": [{"name": "cluster", "host": "::2", "port": 9096}]},
        ]


def test_a_quorum_that_nobody_leads_is_an_error() -> None:
    answer = Cluster(lambda _: NotController("no leader")).ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": METADATA})
    assert (answer["error_code"], answer["error_message"]) == (ErrorCode.NOT_CONTROLLER, "no leader")


@pytest.mark.parametrize("topics", [
    [{"topic_name": "a", "partitions": [{"partition_index": 0}]}],
    [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 1}]}], [*METADATA, *METADATA],
])  # fmt: skip
def test_only_the_metadata_log_has_a_quorum(topics: list[dict[str, Any]]) -> None:
    cluster = Cluster()
    answer = cluster.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics})
    found = [code for topic in answer["topics"] for _, code in codes(topic["partitions"])]
    assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(topics)
    assert cluster.controller.asked == []


@pytest.mark.parametrize("version", versions(ApiKey.ADD_RAFT_VOTER))
def test_a_voter_is_added(version: int) -> None:
    cluster = Cluster()
    listeners = [{"name": "cluster", "host": "::3", "port": 65_000}]
    wish = {"voter_id": 3, "voter_directory_id": UUID(int=3), "listeners": listeners, "timeout_ms": 0}
    for cluster_id in ("c", None):
        answer = cluster.ask(ApiKey.ADD_RAFT_VOTER, version, wish | {"cluster_id": cluster_id})
        assert (answer["error_code"], answer["error_message"]) == (0, None)
    voter = Voter(ReplicaId(3, DIRECTORIES[3]), "[::3]:65000")
    assert cluster.controller.asked == [requests.AddVoter(voter)] * 2
    assert cluster.controller.within_ms == [1, 1]


@pytest.mark.parametrize(("error", "code"), [
    (VoterDuplicate("there"), ErrorCode.DUPLICATE_VOTER), (VotersUnsettled("later"), ErrorCode.REQUEST_TIMED_OUT),
    (NotController("nobody"), ErrorCode.NOT_CONTROLLER),
])  # fmt: skip
def test_a_voter_is_not_added(error: Any, code: ErrorCode) -> None:
    listeners = [{"name": "cluster", "host": "h", "port": 1}]
    wish = {"voter_id": 3, "voter_directory_id": UUID(int=3), "listeners": listeners}
    answer = Cluster(lambda _: error).ask(ApiKey.ADD_RAFT_VOTER, 1, wish)
    assert (answer["error_code"], answer["error_message"]) == (code, str(error))


@pytest.mark.parametrize(("change", "code"), [
    ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID), ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
    ({"voter_directory_id": UUID(int=0)}, ErrorCode.INVALID_REQUEST), ({"listeners": []}, ErrorCode.INVALID_REQUEST),
])  # fmt: skip
def test_what_is_wrong_with_a_voter_is_said(change: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster()
    listeners = [{"name": "cluster", "host": "h", "port": 1}]
    wish = {"voter_id": 3, "voter_directory_id": UUID(int=3), "listeners": listeners, **change}
    assert cluster.ask(ApiKey.ADD_RAFT_VOTER, 0, wish)["error_code"] == code
    if "listeners" not in change:
        assert cluster.ask(ApiKey.REMOVE_RAFT_VOTER, 0, wish)["error_code"] == code
    assert cluster.controller.asked == []


def test_a_voter_is_removed() -> None:
    outcomes: list[Any] = [Done(), VoterNotFound("gone")]
    cluster = Cluster(lambda _: outcomes.pop(0))
    wish = {"voter_id": 2, "voter_directory_id": UUID(int=2)}
    answers = [cluster.ask(ApiKey.REMOVE_RAFT_VOTER, 0, wish)["error_code"] for _ in range(2)]
    assert answers == [ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND]
    assert cluster.controller.asked == [requests.RemoveVoter(ReplicaId(2, DIRECTORIES[2]))] * 2


# -- nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "code"), [
    (None, ErrorCode.NONE), (NodeNotFound("9"), ErrorCode.BROKER_ID_NOT_REGISTERED),
    (RequestInvalid("it is live"), ErrorCode.INVALID_REQUEST),
])  # fmt: skip
def test_a_node_is_unregistered(error: Any, code: ErrorCode) -> None:
    cluster = Cluster(lambda _: error or Done())
    answer = cluster.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 4})
    assert (answer["error_code"], answer["error_message"]) == (code, None if error is None else str(error))
    assert cluster.controller.asked == [requests.UnregisterNode(4)]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
@pytest.mark.parametrize("fenced", [True, False])
def test_the_nodes_of_a_cluster(version: int, fenced: bool) -> None:
    asked = {"include_fenced_brokers": fenced} if version >= 2 else {}
    answer = Cluster().ask(ApiKey.DESCRIBE_CLUSTER, version, asked)
    shown = [1, 2, 3, 4] if version >= 2 and fenced else [1, 2, 3]
    assert [(node["broker_id"], node["host"], node["port"]) for node in answer["brokers"]] == [
        (node_id, f"h{node_id}", 9092) for node_id in shown
    ]
    assert [node["rack"] for node in answer["brokers"][:2]] == [None, "r2"]
    assert [node["broker_id"] for node in answer["brokers"] if node["is_fenced"]] == [4][: len(shown) - 3]
    assert answer["controller_id"] == 1
