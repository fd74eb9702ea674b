"""`duramen cluster`, against a node that says over HTTP what the test wants, and against one that is alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.command import Run, run
from tests.cli.fake import Answer, Answers, FakeNode
from tests.cli.terminal import Terminal

NODE: dict[str, Any] = {
    "id": 1, "state": "live", "rack": "r1", "epoch": 3, "roles": [], "endpoints": {"kafka": "h1:9092"}, "votes": True,
    "leaders": 3, "replicas": 4, "read_replicas": 2, "applied_offset": 15,
}  # fmt: skip
VOTER: dict[str, Any] = {
    "node_id": 1, "directory_id": "d", "end_offset": 20, "synced_offset": 20, "lag": 0, "fetched_ms": None,
    "caught_up_ms": None,
}  # fmt: skip
CLUSTER: dict[str, Any] = {
    "cluster_id": "c\x1b[31m", "node_id": 2, "alone": False, "feature_level": 1,
    "quorum": {
        "leader_id": 1, "epoch": 5, "high_watermark": 19, "from_leader": True,
        "voters": [VOTER, VOTER | {"node_id": 2, "synced_offset": 15, "lag": 5, "fetched_ms": 0}],
        "observers": [VOTER | {"node_id": 4, "end_offset": None, "synced_offset": None, "lag": None}],
    },
    "nodes": [
        NODE, NODE | {"id": 4, "state": "fenced", "rack": None, "endpoints": {}, "applied_offset": None},
    ],
    "partitions": {
        "count": 12, "leaderless": {"count": 0, "first": []},
        "under_replicated": {"count": 2, "first": [{"stream": "a", "partition": 1}, {"stream": "b", "partition": 0}]},
        "moving": {"count": 7, "first": [{"stream": "m", "partition": index} for index in range(7)]},
    },
}  # fmt: skip
PLAN = "POST /v1/cluster/rebalance/plan"
BEGIN = "POST /v1/cluster/rebalance/begin"
ELECT = "POST /v1/cluster/elections"
UNCLEAN_PLAN = "POST /v1/cluster/elections/unclean/plan"
UNCLEAN: dict[str, Any] = {
    "stream": "a", "partition": 1, "leader": 3, "leader_epoch": 4, "end_offset": 400, "known_end": 600,
    "records_lost": 200, "silent_nodes": [1],
}  # fmt: skip
REASSIGN = "POST /v1/cluster/reassignments"
MOVE = {"stream": "a", "partition": 0, "before": [1, 2], "after": [2, 3], "reasons": ["why"], "copies": 1}
ALL_WELL: Answer = (200, {"partitions": []})


def outcome(partition: int, error: str | None = None) -> dict[str, Any]:
    return {"stream": "a", "partition": partition, "error": error, "detail": None if error is None else "it is so"}


def planned(*moves: dict[str, Any], kept: int = 0, leaderless: int = 0) -> Answer:
    """A plan, after which so many partitions are where they should not be, and so many cannot be copied."""
    return 200, {"moves": moves, "kept": named("k", kept), "leaderless": named("l", leaderless)}


def named(stream: str, count: int) -> dict[str, Any]:
    """The first partitions of a stream."""
    return {"count": count, "first": [{"stream": stream, "partition": index} for index in range(count)]}


def keeping(bodies: list[Any], answer: Answer | Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """An answer that keeps what was sent."""

    def answering(body: Any) -> Answer:
        bodies.append(body)
        return answer(body) if callable(answer) else answer

    return answering


UPGRADE: dict[str, Any] = {
    "level": 1, "highest_level": 2, "older_nodes": [],
    "changes": [{"stream": "orders\x1b[31m", "config": "min.insync.replicas", "before": 1, "after": 2}],
}  # fmt: skip


def test_an_upgrade_names_what_changes_and_is_confirmed() -> None:
    bodies: list[Any] = []
    answers: Answers = {
        "GET /v1/cluster/feature-level": (200, UPGRADE),
        "POST /v1/cluster/feature-level": keeping(bodies, (204, None)),
    }
    with FakeNode(answers) as node:
        shown = run("cluster", "upgrade", "--dry-run", server=node.address)
        unasked = run("cluster", "upgrade", server=node.address)
        assert bodies == []
        done = run("cluster", "upgrade", "--yes", server=node.address)
    assert shown.code == 0
    assert "The feature level is 1; all nodes support 2." in shown.out
    assert ["orders\\x1b[31m", "min.insync.replicas", "1", "2"] in [line.split() for line in shown.out.splitlines()]
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    assert (done.code, bodies, done.out.splitlines()[-1]) == (0, [{"level": 2}], "The feature level is 2.")


@pytest.mark.long
def test_nothing_is_upgraded_where_all_nodes_know_no_more() -> None:
    with FakeNode(
        {"GET /v1/cluster/feature-level": (200, UPGRADE | {"highest_level": 1, "changes": [], "older_nodes": [3]})}
    ) as node:
        said = run("cluster", "upgrade", server=node.address)
    assert said.out == "The feature level is 1, the highest that all nodes support.\nNodes of an older version: 3.\n"
    assert said.code == 0


def test_status_is_one_screen() -> None:
    with FakeNode({"GET /v1/cluster": (200, CLUSTER)}) as node:
        said = run("cluster", "status", server=node.address)
        document = json.loads(run("cluster", "status", "--format", "json", server=node.address).out)
    unheard = {"version": None, "health": None, "lag": None, "error": "it has no HTTP address"}
    assert (said.code, said.err) == (0, "")
    assert document == CLUSTER | {"nodes": [one | unheard for one in CLUSTER["nodes"]]}
    lines = [line.split() for line in said.out.splitlines()]
    assert said.out.startswith("Cluster     c\\x1b[31m, feature level 1\n")
    assert "Quorum      node 1 leads in epoch 5; committed up to offset 19" in said.out
    assert ["1", "leader", "20", "20", "0", "-"] in lines
    assert any(line[:5] == ["2", "voter", "20", "15", "5"] and line[-1] == "ago" for line in lines)
    assert ["4", "observer", "-", "-", "-", "-"] in lines
    assert "DIRECTORY" not in said.out
    assert ["1", "live", "r1", "3", "4", "2", "4", "h1:9092"] in lines
    assert ["4", "fenced", "-", "3", "4", "2", "-", "-"] in lines
    assert "Partitions  12: 0 without a leader, 2 under-replicated, 7 being moved" in said.out
    assert "            under-replicated: a:1 b:0\n" in said.out
    assert "            being moved: m:0 m:1 m:2 m:3 m:4 and 2 more\n" in said.out
    assert "without a leader:" not in said.out
    assert len(lines) <= 24


@pytest.mark.long
def test_status_asks_every_node_how_it_is() -> None:
    health = {
        "problem": "the disk is full", "storage": "full", "uptime_seconds": 90, "disk_free_bytes": 1 << 20,
        "descriptors": 40, "descriptors_limit": 1024,
    }  # fmt: skip
    behind = {"node_id": 2, "partitions": 3, "records": 40, "unheard": 0, "seconds": 2.5}
    told = {"version": "1.2", "health": health, "followers": [behind, behind | {"node_id": 3, "unheard": 1}]}
    answers: dict[str, Answer] = {"GET /v1/node": (200, told)}
    with FakeNode(answers) as node:
        nodes = [
            NODE | {"endpoints": {"http": node.address}},
            NODE | {"id": 2, "endpoints": {"http": "127.0.0.1:1"}},
            NODE | {"id": 3},
        ]
        answers["GET /v1/cluster"] = (200, CLUSTER | {"nodes": nodes})
        lines = run("cluster", "status", server=node.address).out.splitlines()
        document = json.loads(run("cluster", "status", "--format", "json", server=node.address).out)
    (at,) = (at for at, line in enumerate(lines) if "DISK FREE" in line)
    first, second, third = (line.split() for line in lines[at + 1 : at + 4])
    assert first[:2] + first[-6:] == ["1", "1.2", "40/1024", "no:", "the", "disk", "is", "full"]
    assert "full" in first[2:6]
    assert first[-9:-6] == ["0", "0", "ms"]
    assert second[:10] == ["2", "-", "-", "-", "-", "40", "2.5", "s", "-", "no:"]
    assert third[5] == ">=40"
    assert lines[at + 4] == ""
    by_id = {one["id"]: one for one in document["nodes"]}
    assert (by_id[1]["health"], by_id[1]["version"], by_id[1]["error"]) == (health, "1.2", None)
    assert by_id[2]["lag"] == {"partitions": 3, "records": 40, "unheard": 0, "seconds": 2.5}
    assert by_id[2]["health"] is None
    assert by_id[2]["error"].startswith("no node answers at 127.0.0.1:1")


@pytest.mark.long
def test_a_node_with_another_disk_is_there_twice_for_a_while() -> None:
    quorum = CLUSTER["quorum"] | {"observers": [VOTER | {"directory_id": "former"}]}
    with FakeNode({"GET /v1/cluster": (200, CLUSTER | {"quorum": quorum})}) as node:
        lines = [line.split() for line in run("cluster", "status", server=node.address).out.splitlines()]
    assert [line[-1] for line in lines if line[1:2] in (["QUORUM"], ["leader"], ["observer"])] == [
        "DIRECTORY", "d", "former",
    ]  # fmt: skip


@pytest.mark.long
def test_status_says_where_no_leader_has_answered() -> None:
    quorum = CLUSTER["quorum"] | {"leader_id": None, "from_leader": False}
    with FakeNode({"GET /v1/cluster": (200, CLUSTER | {"quorum": quorum})}) as node:
        said = run("cluster", "status", server=node.address).out
    assert "Quorum      nobody leads in epoch 5" in said
    assert "No leader has answered: this is what node 2 knows alone." in said
    assert "leader " not in said.splitlines()[5]


def test_a_node_alone(duramen: Run) -> None:
    said = duramen("cluster", "status")
    assert (said.code, said.err) == (0, "")
    assert "is standalone: the only voter" in said.out
    assert ": 0 without a leader, 0 under-replicated, 0 being moved" in said.out
    assert duramen("cluster", "rebalance", "--dry-run").err == "There is nothing to move.\n"
    assert duramen("cluster", "reassign").err == "No reassignment is in progress.\n"
    assert duramen("cluster", "elect").err == "Every partition has its preferred leader.\n"
    refused = duramen("cluster", "drain", "1")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("duramen: node 1 is standalone")


def test_nodes_are_added_drained_and_removed() -> None:
    bodies: list[Any] = []
    answers: Answers = {
        "POST /v1/cluster/voters": keeping(bodies, (204, None)),
        "GET /v1/cluster": (200, CLUSTER),
        "POST /v1/cluster/nodes/4/drain": (204, None),
        "DELETE /v1/cluster/nodes/4": (204, None),
        "DELETE /v1/cluster/nodes/5": (400, {"type": "request-invalid", "detail": "node 5 is live: stop it"}),
    }
    with FakeNode(answers) as node:
        added = run("cluster", "add", "4", server=node.address)
        drained = run("cluster", "drain", "4", server=node.address)
        assert drained.out.startswith("Node 4 drains: leadership moves off it")
        assert (
            run("cluster", "remove", "4", "--yes", server=node.address).out == "Node 4 is removed from the cluster.\n"
        )
        refused = run("cluster", "remove", "5", "--yes", server=node.address)
        unasked = run("cluster", "remove", "4", server=node.address)
    assert (bodies, added.out) == ([{"node_id": 4}], "Node 4 votes.\n")
    assert added.err == "There are 2 voters now, which tolerate no more failures than 1. Use 3 or 5 voters.\n"
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("duramen: node 5 is live: stop it")
    assert (unasked.code, "give --yes" in unasked.err) == (2, True)
    assert node.asked.count("DELETE /v1/cluster/nodes/4") == 1


def test_elections() -> None:
    bodies: list[Any] = []
    outcomes = [outcome(0), outcome(1, "election-not-needed")]
    answers: Answers = {
        ELECT: keeping(bodies, lambda _: (200, {"partitions": outcomes})),
        "GET /v1/streams/a": (200, {"partitions": [{"partition": 0}, {"partition": 1}]}),
        UNCLEAN_PLAN: (200, {"partitions": [UNCLEAN]}),
    }
    with FakeNode(answers) as node:
        said = run("cluster", "elect", "a", server=node.address)
        assert run("cluster", "elect", "a", "1", "--leader", "3", server=node.address).code == 0
        unclean = run("cluster", "elect", "--unclean", "--yes", "--format", "json", server=node.address)
        outcomes.append(outcome(2, "leader-unavailable"))
        failed = run("cluster", "elect", server=node.address)
        usages = [
            run("cluster", "elect", *words, server=node.address)
            for words in (("--leader", "3"), ("a", "--leader", "3", "--unclean", "--yes"), ("--unclean",))
        ]
    assert (said.code, failed.code, [one.code for one in usages]) == (0, 1, [2, 2, 2])
    assert json.loads(unclean.out) == outcomes[:2]
    assert ["a", "1", "3", "400", "600", "200", "1"] in [line.split() for line in unclean.err.splitlines()]
    assert "is unknown" in unclean.err
    lines = [line.split() for line in failed.out.splitlines()]
    assert lines[:2] == [["STREAM", "PARTITION", "OUTCOME"], ["a", "0", "elected"]]
    assert lines[3] == ["a", "2", "it", "is", "so", "[leader-unavailable]"]
    both = [{"stream": "a", "partition": index} for index in (0, 1)]
    assert bodies == [
        {"unclean": False, "partitions": both}, {"unclean": False, "partitions": both[1:], "leader": 3},
        {"unclean": True}, {"unclean": False},
    ]  # fmt: skip


def test_reassignments() -> None:
    bodies: list[Any] = []
    under_way = {"stream": "a", "partition": 0, "replicas": [3, 1, 2], "adding": [3], "removing": []}
    answers: Answers = {
        "GET /v1/cluster/reassignments": (200, {"reassignments": [under_way]}),
        REASSIGN: keeping(bodies, (200, {"partitions": [outcome(0)]})),
    }
    with FakeNode(answers) as node:
        listed = run("cluster", "reassign", server=node.address).out.splitlines()
        document = json.loads(run("cluster", "reassign", "--format", "json", server=node.address).out)
        begun = run("cluster", "reassign", "a", "0", "--replicas", "3, 1", server=node.address).out
        taken = run("cluster", "reassign", "a", "0", "--cancel", server=node.address).out
        wrong = [
            run("cluster", "reassign", *words, server=node.address)
            for words in (("a", "0"), ("a", "--cancel"), ("a", "0", "--replicas", "x"), ("--replicas", "1"),
                          ("a", "0", "--replicas", "1", "--cancel"), ("a", "0", "--replicas", str(1 << 31)))
        ]  # fmt: skip
    assert listed[1].split() == ["a", "0", "3,1,2", "3", "-"]
    assert document == [under_way]
    assert (begun.split()[-1], taken.split()[-1]) == ("begun", "cancelled")
    assert [body["partitions"][0]["replicas"] for body in bodies] == [[3, 1], None]
    assert [one.code for one in wrong] == [2] * 6
    assert "must be ids of nodes such as 1,2,3" in wrong[2].err
    assert "must be ids of nodes such as 1,2,3" in wrong[5].err


@pytest.mark.long
def test_partitions_get_another_number_of_replicas() -> None:
    bodies: list[Any] = []
    stream = {"partitions": [
        {"partition": 0, "leader": 1, "replicas": [1], "in_sync": [1]},
        {"partition": 1, "leader": 2, "replicas": [1, 2, 3], "in_sync": [2, 3]},
        {"partition": 2, "leader": 3, "replicas": [3, 1], "in_sync": [3]},
    ]}  # fmt: skip
    nodes = [
        NODE | {"id": 1, "rack": "a", "replicas": 3}, NODE | {"id": 2, "rack": "a", "replicas": 1},
        NODE | {"id": 3, "rack": "b", "replicas": 9}, NODE | {"id": 4, "rack": "c", "replicas": 0, "state": "fenced"},
    ]  # fmt: skip
    answers: Answers = {
        "GET /v1/streams/a": (200, stream), "GET /v1/cluster/nodes": (200, {"nodes": nodes}),
        REASSIGN: keeping(bodies, (200, {"partitions": [outcome(0)]})),
    }  # fmt: skip
    with FakeNode(answers) as node:
        words = ("cluster", "reassign", "a")
        both, three = (run(*words, "--replication-factor", count, server=node.address) for count in "23")
        none = run(*words, "1", "--replication-factor", "3", server=node.address)
        more = run(*words, "2", "--replication-factor", "4", server=node.address)
        unknown = run(*words, "7", "--replication-factor", "2", server=node.address)
        wrong = run(*words, "--replication-factor", "2", "--cancel", server=node.address)
    assert (both.code, three.code, both.out.split()[-1]) == (0, 0, "begun")
    replicas = [{one["partition"]: one["replicas"] for one in body["partitions"]} for body in bodies]
    assert replicas == [{0: [1, 3], 1: [2, 3]}, {0: [1, 3, 2], 2: [3, 1, 2]}]
    assert (none.code, none.out, none.err) == (0, "", "Every named partition has 3 replicas.\n")
    assert (more.code, unknown.code, wrong.code) == (1, 1, 2)
    assert more.err.startswith("duramen: partition 2 cannot have 4 replicas: 3 nodes are live")
    assert unknown.err.startswith("duramen: a has no partition 7: it has 3")


@pytest.mark.long
def test_a_plan_is_shown_and_left() -> None:
    bodies: list[Any] = []
    with FakeNode({PLAN: keeping(bodies, planned(MOVE))}) as node:
        shown = run("cluster", "rebalance", "--dry-run", "--without", "1", "--without", "4", server=node.address)
        document = run("cluster", "rebalance", "--dry-run", "--format", "json", server=node.address).out
        unasked = run("cluster", "rebalance", server=node.address)
        wrong = run("cluster", "rebalance", "--cancel", "--dry-run", server=node.address)
    assert shown.out.splitlines()[1].split() == ["a", "0", "1,2", "2,3", "1", "why"]
    assert shown.out.endswith("1 moves, 1 replicas to be copied\n")
    assert json.loads(document) == [MOVE]
    assert bodies == [{"without_nodes": [1, 4]}, {"without_nodes": []}]
    assert (unasked.code, wrong.code) == (2, 2)


@pytest.mark.long
def test_a_node_that_cannot_be_emptied_is_an_error() -> None:
    step = {"done": 1, "moving": 0, "waiting": 0, "void": 0}
    answers: Answers = {PLAN: planned(MOVE, kept=6), BEGIN: (200, step), ELECT: ALL_WELL}
    with FakeNode(answers) as node:
        words = ("cluster", "rebalance", "--without", "4", "--without", "5")
        shown, done = run(*words, "--dry-run", server=node.address), run(*words, "--yes", server=node.address)
    with FakeNode({PLAN: planned(kept=1)}) as node:
        nothing = run(*words, "--yes", server=node.address)
    assert [one.code for one in (shown, done, nothing)] == [1] * 3
    assert (shown.out.splitlines()[-1], done.out) == (
        "1 moves, 1 replicas to be copied", "1 moves are done, and 0 leaders moved.\n",
    )  # fmt: skip
    for one in (shown, done):
        assert one.err.startswith("duramen: 6 partitions cannot leave node 4, 5, because every other node")
        assert "one already: k:0 k:1 k:2 k:3 k:4 and 1 more; start another node" in one.err
    assert nothing.err.splitlines()[0] == "There is nothing to move."
    assert "duramen: 1 partition cannot leave node 4, 5" in nothing.err


def test_a_partition_that_nobody_can_copy_is_an_error() -> None:
    step = {"done": 1, "moving": 0, "waiting": 0, "void": 0, "leaderless": named("l", 0)}
    answers: Answers = {PLAN: planned(MOVE, leaderless=2), BEGIN: (200, step), ELECT: ALL_WELL}
    with FakeNode(answers) as node:
        done = run("cluster", "rebalance", "--without", "4", "--yes", server=node.address)
    assert (done.code, done.out) == (1, "1 moves are done, and 0 leaders moved.\n")
    assert done.err.startswith("duramen: 2 partitions have no leader, and no other node can copy the records: l:0 l:1;")
    assert "--unclean` where another replica is live, or delete the stream; then run this again" in done.err


def test_a_plan_is_carried_out_step_by_step() -> None:
    bodies: list[Any] = []
    steps: list[Answer] = [
        (200, {"done": 0, "moving": 2, "waiting": 498, "void": 0}),
        (503, {"type": "not-controller", "detail": "nobody leads"}),
        (200, {"done": 499, "moving": 0, "waiting": 0, "void": 1}),
        (200, {"done": 101, "moving": 0, "waiting": 0, "void": 0}),
    ]
    plan = [MOVE | {"partition": index} for index in range(601)]
    answers: Answers = {
        PLAN: planned(*plan),
        BEGIN: keeping(bodies, lambda _: steps.pop(0)),
        ELECT: (200, {"partitions": [outcome(0), outcome(1, "leader-unavailable")]}),
    }
    with FakeNode(answers) as node:
        ended = run("cluster", "rebalance", "--yes", "--at-once", "2", server=node.address)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        "600 moves are done, and 1 leaders moved; 1 were void, because their partitions have changed since.\n"
    )
    assert [(body["at_once"], len(body["moves"])) for body in bodies] == [(2, 500)] * 3 + [(2, 101)]
    assert bodies[3]["moves"] == plan[500:]


@pytest.mark.long
def test_the_end_of_a_plan_as_json() -> None:
    step = {"done": 1, "moving": 0, "waiting": 0, "void": 0}
    with FakeNode({PLAN: planned(MOVE), BEGIN: (200, step), ELECT: ALL_WELL}) as node:
        out = run("cluster", "rebalance", "--yes", "--format", "json", server=node.address).out
    assert json.loads(out) == {"done": 1, "void": 0, "elected": 0}


@pytest.mark.long
def test_moves_that_cannot_be_begun_are_an_error() -> None:
    problem: Answer = (400, {"type": "replica-assignment-invalid", "detail": "only node 1 has all the records"})
    with FakeNode({PLAN: planned(MOVE), BEGIN: problem}) as node:
        ended = run("cluster", "rebalance", "--yes", server=node.address)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("duramen: only node 1 has all the records")


@pytest.mark.long
def test_what_is_under_way_is_taken_back() -> None:
    bodies: list[Any] = []
    under_way = [{"stream": "a", "partition": index, "replicas": [1], "adding": [], "removing": []} for index in (0, 1)]
    outcomes = [outcome(0), outcome(1, "replica-assignment-invalid")]
    answers: Answers = {
        "GET /v1/cluster/reassignments": (200, {"reassignments": under_way}),
        REASSIGN: keeping(bodies, (200, {"partitions": outcomes})),
    }
    with FakeNode(answers) as node:
        ended = run("cluster", "rebalance", "--cancel", "--yes", server=node.address)
    with FakeNode({"GET /v1/cluster/reassignments": (200, {"reassignments": []})}) as node:
        none = run("cluster", "rebalance", "--cancel", "--yes", server=node.address)
    assert (ended.code, [line.split()[1:3] for line in ended.out.splitlines()[1:]]) == (
        1, [["0", "cancelled"], ["1", "it"]],
    )  # fmt: skip
    assert bodies == [{"partitions": [{"stream": "a", "partition": index, "replicas": None} for index in (0, 1)]}]
    assert (none.code, none.err) == (0, "No reassignment is in progress.\n")


@pytest.mark.long
def test_interrupted_it_says_what_goes_on() -> None:
    step = {"done": 0, "moving": 3, "waiting": 1, "void": 0}
    with FakeNode({PLAN: planned(MOVE), BEGIN: (200, step)}) as node:
        terminal = Terminal("cluster", "rebalance", server=node.address, columns=200)
        terminal.answer("Execute these 1 moves?", "y\n")
        code, shown = terminal.interrupt("moving 1 partitions").end()
    assert code == 130
    assert "no more moves are started; those in progress (3 at the last check) continue." in shown
    assert "`duramen cluster rebalance --cancel` cancels them" in shown


@pytest.mark.variants(1)
@pytest.mark.parametrize("words", [
    ("status",), ("add", "1"), ("drain", "1"), ("remove", "1", "--yes"), ("reassign",), ("elect",),
    ("rebalance", "--dry-run"),
])  # fmt: skip
def test_without_a_node_there_is_one_line(words: tuple[str, ...]) -> None:
    ended = run("cluster", *words, server="127.0.0.1:1")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "no node answers at 127.0.0.1:1" in ended.err


def test_an_id_is_a_number() -> None:
    ended = run("cluster", "drain", "first", server="127.0.0.1:1")
    assert (ended.code, "'first' is not a valid integer" in ended.err) == (2, True)
