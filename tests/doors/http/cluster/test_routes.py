"""The cluster over HTTP: a node alone as it is, and the routes with a controller by hand behind them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from tests.controller.active.scripted import DIRECTORIES, STREAM, Operated, Scripting, described, office_of, state_of
from tests.doors.http.conftest import Ask

from duramen.base.errors import (
    DuramenError,
    ElectionNotNeeded,
    LeaderUnavailable,
    NodeNotFound,
    NotController,
    ReassignmentNotFound,
    RequestInvalid,
    StreamNotFound,
    VotersUnsettled,
)
from duramen.base.metrics import Metrics
from duramen.broker.control import requests
from duramen.broker.control.responses import Done, Observed, Planned, Stepped
from duramen.doors.http.cluster.routes import ROUTES
from duramen.doors.http.serving.routes import Call, RouteNode
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.rebalance import MoveReason, ReplicaMove
from duramen.raft.voters import ReplicaId, Voter
from duramen.sim.broker import ManualBroker

PARTITIONS = (
    PartitionState((1, 2), (1, 2), 1, 3, 3),
    PartitionState((2, 1), (1,), 1, 4, 4),
    PartitionState((1, 2, 3), (1, 2), 1, 5, 5, adding=(3,), removing=(2,)),
    PartitionState((3, 2), (), None, 6, 6),
)
PLACES = [PartitionId(STREAM, index) for index in range(len(PARTITIONS))]
SEEN = Observed(*described()[:5], tuple(described().endpoints), {1: 20, 2: 17, 3: 20})
MOVES = (
    ReplicaMove(PLACES[0], (1, 2), (2, 3), (MoveReason.LOAD, MoveReason.LEADER)),
    ReplicaMove(PLACES[1], (2, 1), (1, 2), ()),
)


class Cluster:
    """The routes, and a controller that answers as the test says."""

    def __init__(self, script: Scripting = lambda _: Done()) -> None:
        manual = ManualBroker()
        cluster_admin, self.asking = office_of(script, state_of(*PARTITIONS))
        membership: Any = Operated(manual.broker.membership, cluster_admin)
        manual.broker.membership = membership
        self._node = RouteNode(Metrics(), {}, str)
        self._node.broker = manual.broker
        self._node.cluster_id = "c"

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **parameters: str) -> Any:
        """What is answered, as JSON has it."""
        (route,) = [route for route in ROUTES if (route.method, route.path) == (method, f"/v1/cluster{path}")]
        call = Call(self._node, Request({"type": "http", "path_params": parameters}))
        types = route.types()
        given = {} if "body" not in types else {"body": msgspec.convert(body, types["body"])}

        async def answer() -> object:
            return await route.handler(call, **given)

        return msgspec.json.decode(msgspec.json.encode(asyncio.run(answer())))


def test_a_cluster_at_a_glance() -> None:
    cluster = Cluster(lambda _: SEEN)
    found = cluster.ask("GET", "")
    nodes = found.pop("nodes")
    quorum = found.pop("quorum")
    assert found == {
        "cluster_id": "c", "node_id": 1, "alone": False, "feature_level": 0,
        "partitions": {
            "count": 4,
            "leaderless": {"count": 1, "first": [{"stream": "a", "partition": 3}]},
            "under_replicated": {
                "count": 2, "first": [{"stream": "a", "partition": 1}, {"stream": "a", "partition": 3}],
            },
            "moving": {"count": 1, "first": [{"stream": "a", "partition": 2}]},
        },
    }  # fmt: skip
    voters, observers = quorum.pop("voters"), quorum.pop("observers")
    assert quorum == {"leader_id": 1, "epoch": 5, "high_watermark": 15, "from_leader": True}
    assert voters[1] == {
        "node_id": 2, "directory_id": DIRECTORIES[2], "end_offset": 17, "synced_offset": 15, "lag": 5,
        "fetched_ms": 990, "caught_up_ms": 900,
    }  # fmt: skip
    assert [(one["node_id"], one["lag"]) for one in (*voters, *observers)] == [(1, 0), (2, 5), (3, 0)]
    assert [(node["id"], node["state"], node["votes"], node["applied_offset"]) for node in nodes] == [
        (1, "live", True, 20), (2, "live", True, 17), (3, "draining", False, 20), (4, "fenced", False, None),
    ]  # fmt: skip
    assert [(node["leaders"], node["replicas"]) for node in nodes] == [(3, 3), (0, 4), (0, 2), (0, 0)]
    assert [node["read_replicas"] for node in nodes] == [0, 0, 0, 0]
    assert nodes[1]["endpoints"] == {"kafka": "h2:9092", "cluster": "h2:9096"}
    assert (nodes[1]["rack"], nodes[1]["epoch"]) == ("r2", 2)
    assert cluster.ask("GET", "/nodes") == {"nodes": nodes}
    assert cluster.ask("GET", "/quorum") == {**quorum, "voters": voters, "observers": observers}


def test_without_a_leader_a_node_says_what_it_knows_itself() -> None:
    quorum = Cluster(lambda _: NotController("nobody leads")).ask("GET", "/quorum")
    assert (quorum["from_leader"], [one["node_id"] for one in quorum["voters"]]) == (False, [1, 2])


@pytest.mark.parametrize(("method", "path", "request_"), [
    ("POST", "/nodes/{id}/drain", requests.DrainNode(4)), ("DELETE", "/nodes/{id}", requests.UnregisterNode(4)),
])  # fmt: skip
def test_nodes_are_drained_and_removed(method: str, path: str, request_: requests.Request) -> None:
    cluster = Cluster(lambda request: SEEN if isinstance(request, requests.Observe) else Done())
    assert cluster.ask(method, path, id="4") is None
    assert cluster.asking.asked[-1] == request_
    with pytest.raises(RequestInvalid, match="the id of a node is a number, not x"):
        cluster.ask(method, path, id="x")
    failing = Cluster(lambda request: SEEN if isinstance(request, requests.Observe) else NodeNotFound("no node 4"))
    with pytest.raises(NodeNotFound):
        failing.ask(method, path, id="4")


def test_voters_come_and_go() -> None:
    cluster = Cluster(lambda request: SEEN if isinstance(request, requests.Observe) else Done())
    assert cluster.ask("POST", "/voters", {"node_id": 3}) is None
    assert cluster.ask("DELETE", "/voters/{id}", id="2") is None
    assert cluster.asking.asked[1::2] == [
        requests.AddVoter(Voter(ReplicaId(3, DIRECTORIES[3]), "h3:9096")),
        requests.RemoveVoter(ReplicaId(2, DIRECTORIES[2])),
    ]
    with pytest.raises(VotersUnsettled):
        cluster.ask("POST", "/voters", {"node_id": 4})


def test_the_feature_level() -> None:
    cluster = Cluster()
    assert cluster.ask("POST", "/feature-level", {"level": 2}) is None
    assert cluster.asking.asked == [requests.SetFeatureLevel(2)]


def test_elections_say_what_became_of_each_partition() -> None:
    refused = {1: LeaderUnavailable("not in sync"), 3: ElectionNotNeeded("it leads")}

    def script(request: Any) -> Any:
        return refused.get(request.place.partition, Done())

    places = [{"stream": "a", "partition": index} for index in (0, 1)]
    well, ill = {**places[0], "error": None, "detail": None}, {
        **places[1], "error": "leader-unavailable", "detail": "not in sync",
    }  # fmt: skip
    cluster = Cluster(script)
    assert cluster.ask("POST", "/elections", {"partitions": places}) == {"partitions": [well, ill]}
    assert cluster.ask("POST", "/elections", {"partitions": places, "leader": 2}) == {"partitions": [well, ill]}
    assert cluster.asking.asked == [
        requests.ElectLeader(PLACES[0]), requests.ElectLeader(PLACES[1]),
        requests.MoveLeader(PLACES[0], 2), requests.MoveLeader(PLACES[1], 2),
    ]  # fmt: skip
    found = cluster.ask("POST", "/elections", {})["partitions"]
    assert [(one["partition"], one["error"]) for one in found] == [
        (1, "leader-unavailable"),
        (3, "election-not-needed"),
    ]
    asked = len(cluster.asking.asked)
    unclean = cluster.ask("POST", "/elections", {"unclean": True})["partitions"]
    assert [(one["partition"], one["error"]) for one in unclean] == [(3, "leader-unavailable")]
    assert len(cluster.asking.asked) == asked  # no replica has said what it has: nobody is elected
    (plan,) = cluster.ask("POST", "/elections/unclean/plan", {})["partitions"]
    assert (plan["partition"], plan["leader"], plan["end_offset"]) == (3, None, None)
    for wish in ({"leader": 1}, {"leader": 1, "partitions": places, "unclean": True}):
        with pytest.raises(RequestInvalid, match="a `leader` is for"):
            cluster.ask("POST", "/elections", wish)
    with pytest.raises(StreamNotFound):
        cluster.ask("POST", "/elections", {"partitions": [{"stream": "a", "partition": 4}]})


def test_reassignments() -> None:
    cluster = Cluster(
        lambda request: ReassignmentNotFound("none") if isinstance(request, requests.CancelReassignment) else Done()
    )
    found = cluster.ask("GET", "/reassignments")
    moving = {"stream": "a", "partition": 2, "replicas": [1, 2, 3], "adding": [3], "removing": [2]}
    assert found == {"reassignments": [moving]}
    wishes = [{"stream": "a", "partition": 0, "replicas": [3, 1]}, {"stream": "a", "partition": 1, "replicas": None}]
    outcomes = cluster.ask("POST", "/reassignments", {"partitions": wishes})["partitions"]
    assert [(one["partition"], one["error"]) for one in outcomes] == [(0, None), (1, "reassignment-not-found")]
    assert cluster.asking.asked == [requests.Reassign(PLACES[0], (3, 1)), requests.CancelReassignment(PLACES[1])]


def test_a_plan_is_made_carried_out_and_taken_back() -> None:
    def script(request: Any) -> Any:
        return Planned(MOVES) if isinstance(request, requests.PlanMoves) else Stepped(1, 2, 3, 4)

    cluster = Cluster(script)
    found = cluster.ask("POST", "/rebalance/plan", {"without_nodes": [2]})
    planned = found["moves"]
    assert planned[0] == {
        "stream": "a", "partition": 0, "before": [1, 2], "after": [2, 3], "copies": 1,
        "reasons": ["another node has fewer replicas", "another node is the preferred leader of fewer partitions"],
    }  # fmt: skip
    # After the moves node 2 has these still; the last one nobody can copy, for it has no leader.
    kept, leaderless = ([{"stream": "a", "partition": one} for one in some] for some in ((0, 1), (3,)))
    assert found["kept"] == {"count": 2, "first": kept}
    assert found["leaderless"] == {"count": 1, "first": leaderless}
    gone = {"stream": "gone", "partition": 0, "before": [1], "after": [2]}
    none = {"count": 0, "first": []}
    step = {"done": 1, "moving": 2, "waiting": 3, "void": 5, "leaderless": none}
    assert cluster.ask("POST", "/rebalance/begin", {"moves": [*planned, gone], "at_once": 2}) == step
    assert cluster.ask("POST", "/rebalance/cancel", {"moves": [*planned, gone]}) == step
    assert cluster.ask("POST", "/rebalance/progress", {"moves": [*planned, gone]}) == {
        "done": 0, "moving": 0, "waiting": 2, "void": 1, "leaderless": none,
    }  # fmt: skip
    moves = tuple(move._replace(reasons=()) for move in MOVES)
    assert cluster.asking.asked == [
        requests.PlanMoves((2,)), requests.BeginMoves(moves, 2), requests.CancelMoves(moves),
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/rebalance/plan", "/rebalance/begin", "/rebalance/cancel"])
def test_a_controller_that_does_not_answer_is_an_error(path: str) -> None:
    wish: dict[str, Any] = {} if path.endswith("plan") else {"moves": []}
    with pytest.raises(DuramenError, match="nobody leads"):
        Cluster(lambda _: NotController("nobody leads")).ask("POST", path, wish)


# -- alone --------------------------------------------------------------------------------------------


def test_a_node_alone_is_a_cluster_of_one(ask: Ask, stream_name: str) -> None:
    assert ask("POST", "/v1/streams", {"name": stream_name, "partitions": 2})[0] == 201
    status, found = ask("GET", "/v1/cluster")
    assert status == 200
    (node,) = found["nodes"]
    me = ask("GET", "/v1/node")[1]
    assert (found["alone"], found["cluster_id"], node["id"]) == (True, me["cluster_id"], me["node_id"])
    assert (node["state"], node["leaders"], node["votes"]) == ("live", found["partitions"]["count"], True)
    assert found["partitions"]["leaderless"] == {"count": 0, "first": []}
    (voter,) = found["quorum"]["voters"]
    assert (voter["node_id"], voter["lag"]) == (me["node_id"], 0)
    assert ask("GET", "/v1/cluster/reassignments") == (200, {"reassignments": []})
    none = {"count": 0, "first": []}
    plan = {"moves": [], "kept": none, "leaderless": none}
    assert ask("POST", "/v1/cluster/rebalance/plan", {}) == (200, plan)
    places = [{"stream": stream_name, "partition": 1}]
    (outcome,) = ask("POST", "/v1/cluster/elections", {"partitions": places})[1]["partitions"]
    assert outcome["error"] == "election-not-needed"


def test_what_a_node_alone_cannot_do_is_said(ask: Ask, stream_name: str) -> None:
    assert ask("POST", "/v1/streams", {"name": stream_name})[0] == 201
    me = ask("GET", "/v1/node")[1]["node_id"]
    wrong = [
        ("POST", f"/v1/cluster/nodes/{me}/drain", None, 400, "request-invalid"),
        ("DELETE", f"/v1/cluster/nodes/{me}", None, 400, "request-invalid"),
        ("DELETE", f"/v1/cluster/nodes/{me + 1}", None, 404, "node-not-found"),
        ("POST", "/v1/cluster/voters", {"node_id": me}, 409, "voter-duplicate"),
        ("DELETE", f"/v1/cluster/voters/{me + 1}", None, 404, "voter-not-found"),
        ("POST", "/v1/cluster/feature-level", {"level": 1}, 400, "unsupported-feature"),
        ("POST", "/v1/cluster/rebalance/plan", {"without_nodes": [me + 1]}, 404, "node-not-found"),
        ("POST", "/v1/cluster/elections", {"partitions": [{"stream": "no", "partition": 0}]}, 404, "stream-not-found"),
        ("POST", "/v1/cluster/rebalance/begin", {"moves": [], "at_once": 0}, 400, "request-invalid"),
    ]
    for method, path, body, status, error in wrong:
        found = ask(method, path, body)
        assert (found[0], found[1]["type"]) == (status, error), path
    wishes = [{"stream": stream_name, "partition": 0, "replicas": replicas} for replicas in ([me], [me + 1])]
    outcomes = ask("POST", "/v1/cluster/reassignments", {"partitions": wishes})[1]["partitions"]
    assert [one["error"] for one in outcomes] == [None, "replica-assignment-invalid"]
