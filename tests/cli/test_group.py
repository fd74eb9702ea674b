"""`duramen group`, against a node, and against one that says what it is told to."""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.cli.command import Run, command_environment, run
from tests.cli.fake import Answer, FakeNode
from tests.cli.terminal import Terminal

from duramen.node.process import NodeProcess

GROUPS: list[dict[str, Any]] = [
    {
        "id": "a",
        "state": "Empty",
        "protocol_type": "consumer",
        "protocol": "",
        "members": 0,
        "lag_records": 3,
        "kind": "classic",
    },
    {
        "id": "b c",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "range",
        "members": 1,
        "lag_records": 0,
        "kind": "consumer",
    },
]
GROUP: dict[str, Any] = {
    "id": "a", "state": "Empty", "protocol_type": "consumer", "protocol": "range", "generation": 4, "kind": "classic",
    "members": [
        {"member_id": "m-1", "instance_id": None, "client_id": "c\x1b[31m", "host": "127.0.0.1",
         "partitions": [{"stream": "s", "partition": 0}, {"stream": "s", "partition": 1}]},
    ],
    "offsets": [
        {"stream": "s", "partition": 0, "committed_offset": 7, "start_offset": 0, "end_offset": 10, "lag_records": 3,
         "lag_seconds": 90.0},
        {"stream": "s", "partition": 1, "committed_offset": 5, "start_offset": 0, "end_offset": 5, "lag_records": 0,
         "lag_seconds": 0},
        {"stream": "t", "partition": 0, "committed_offset": 5, "start_offset": 0, "end_offset": None,
         "lag_records": None, "lag_seconds": None},
    ],
}  # fmt: skip
NOT_FOUND: Answer = (404, {"type": "group-not-found", "detail": "there is no group x", "status": 404})


ALONE: dict[str, tuple[int, object]] = {"GET /v1/cluster/nodes": (200, {"nodes": []})}


def nodes_at(*addresses: str) -> tuple[int, object]:
    """What a node answers that is asked for the nodes of its cluster."""
    return 200, {"nodes": [{"state": "live", "endpoints": {"http": address}} for address in addresses]}


def test_describe_shows_the_start_and_the_lag_of_a_share_group() -> None:
    offset = {"stream": "s", "partition": 0, "committed_offset": None, "end_offset": 9, "lag_seconds": 90.0}
    offsets = [
        {**offset, "start_offset": 4, "lag_records": 5},
        {**offset, "partition": 1, "start_offset": None, "lag_records": None, "lag_seconds": None},
    ]
    with FakeNode({**ALONE, "GET /v1/groups/a": (200, {**GROUP, "kind": "share", "offsets": offsets})}) as node:
        lines = run("group", "describe", "a", server=node.address).out.splitlines()
    assert "Lag         5 records, 1.5 min" in lines
    assert [line.split() for line in lines[-3:]] == [
        ["STREAM", "PARTITION", "START", "END", "LAG", "RECORDS", "LAG", "TIME"],
        ["s", "0", "4", "9", "5", "1.5", "min"],
        ["s", "1", "-", "9", "-", "-"],
    ]


@pytest.mark.long
def test_list_follows_the_pages() -> None:
    answers = {
        **ALONE,
        "GET /v1/groups": (200, {"groups": GROUPS[:1], "next": "a/b"}),
        "GET /v1/groups?after=a%2Fb": (200, {"groups": GROUPS[1:], "next": None}),
    }
    with FakeNode(answers) as node:
        lines = run("group", "list", server=node.address).out.splitlines()
        listed = json.loads(run("group", "list", "--format", "json", server=node.address).out)
    assert [line.split() for line in lines] == [
        ["GROUP", "KIND", "STATE", "PROTOCOL", "MEMBERS", "LAG", "RECORDS"],
        ["a", "classic", "Empty", "-", "0", "3"],
        ["b", "c", "consumer", "Stable", "range", "1", "0"],
    ]
    assert listed == GROUPS


def test_none_yet() -> None:
    with FakeNode({**ALONE, "GET /v1/groups": (200, {"groups": [], "next": None})}) as node:
        ended = run("group", "list", server=node.address)
    assert (ended.code, ended.out, ended.err.startswith("There are no consumer groups yet")) == (0, "", True)


@pytest.mark.long
def test_a_list_that_may_lack_groups_says_so() -> None:
    silent = {"groups": GROUPS[:1], "next": "a", "silent_nodes": [3], "leaderless_partitions": []}
    offline = {"groups": [], "next": None, "silent_nodes": [], "leaderless_partitions": [4, 7]}
    with FakeNode({**ALONE, "GET /v1/groups": (200, silent), "GET /v1/groups?after=a": (200, offline)}) as node:
        ended = run("group", "list", "--format", "json", server=node.address)
    assert (ended.code, json.loads(ended.out)) == (1, GROUPS[:1])
    assert "nodes that did not answer: 3" in ended.err
    assert "without a leader: 4, 7" in ended.err
    with FakeNode({**ALONE, "GET /v1/groups": (200, offline)}) as node:
        ended = run("group", "list", server=node.address)
    assert (ended.code, ended.out, "no consumer groups" in ended.err) == (1, "", False)


@pytest.mark.long
def test_a_group_is_deleted_where_it_is_coordinated() -> None:
    elsewhere = (503, {"type": "not-coordinator", "detail": "this node does not lead partition 9"})
    answers: dict[str, tuple[int, object]] = {"GET /v1/groups/a": elsewhere, "DELETE /v1/groups/a": elsewhere}
    with FakeNode({"GET /v1/groups/a": (200, {}), "DELETE /v1/groups/a": (204, None)}) as other:
        with FakeNode(answers) as node:
            answers["GET /v1/cluster/nodes"] = nodes_at(node.address, other.address)
            ended = run("group", "delete", "a", "--yes", server=node.address)
        assert (ended.code, ended.out) == (0, "Group a deleted.\n")
        assert other.asked == ["GET /v1/groups/a", "DELETE /v1/groups/a"]


def test_describe() -> None:
    with FakeNode({"GET /v1/groups/a": (200, GROUP)}) as node:
        said = run("group", "describe", "a", server=node.address).out
        document = json.loads(run("group", "describe", "a", "--format", "json", server=node.address).out)
    assert document == GROUP
    lines = [line.split() for line in said.splitlines()]
    assert ["Lag", "3", "records,", "1.5", "min"] in lines
    assert ["s", "0", "7", "0", "10", "3", "1.5", "min"] in lines
    assert ["t", "0", "5", "0", "-", "-", "-"] in lines
    assert ["m-1", r"c\x1b[31m", "127.0.0.1", "s:0", "s:1"] in lines


@pytest.mark.long
def test_a_group_that_is_not_there() -> None:
    with FakeNode({"GET /v1/groups/x": NOT_FOUND}) as node:
        ended = run("group", "describe", "x", server=node.address)
        deleted = run("group", "delete", "x", "--yes", server=node.address)
    assert (ended.code, "there is no group x" in ended.err, "[group-not-found]" in ended.err) == (1, True, True)
    assert deleted == ended


class TestReset:
    def _node(self, wishes: list[Any]) -> FakeNode:
        def reset(wish: dict[str, Any]) -> Answer:
            wishes.append(wish)
            return 200, {
                "offsets": [
                    {"stream": "s", "partition": 0, "before": 7, "after": 0},
                    {"stream": "s", "partition": 1, "before": None, "after": 0},
                ]
            }

        return FakeNode({"POST /v1/groups/a%2Fb/offsets": reset})

    def test_shows_what_it_would_do(self) -> None:
        wishes: list[Any] = []
        words = ("group", "reset", "a/b", "--to", "start", "--dry-run")
        with self._node(wishes) as node:
            lines = run(*words, server=node.address).out.splitlines()
            document = json.loads(run(*words, "--format", "json", server=node.address).out)
        assert [line.split() for line in lines[1:]] == [["s", "0", "7", "0"], ["s", "1", "-", "0"]]
        assert document[1] == {"stream": "s", "partition": 1, "before": None, "after": 0}
        assert wishes == [{"to": "start", "dry_run": True}] * 2

    def test_does_it(self) -> None:
        wishes: list[Any] = []
        also = ("--stream", "s", "--stream", "t", "--partition", "1", "--yes")
        with self._node(wishes) as node:
            ended = run("group", "reset", "a/b", "--to", "-5", *also, server=node.address)
        assert (ended.code, ended.err) == (0, "")
        assert wishes == [{"to": "-5", "streams": ["s", "t"], "partition": 1, "dry_run": False}]

    @pytest.mark.variants(1)
    @pytest.mark.parametrize("answer", ["y", "n"])
    def test_asks(self, answer: str) -> None:
        wishes: list[Any] = []
        with self._node(wishes) as node:
            terminal = Terminal("group", "reset", "a/b", "--to", "@-30s", server=node.address)
            code, shown = terminal.answer("Set these 2 offsets of a/b?", f"{answer}\n").end()
        assert code == (0 if answer == "y" else 1)
        assert "PARTITION" in shown
        assert [wish["dry_run"] for wish in wishes] == ([True, False] if answer == "y" else [True])
        # What was shown is what is done: the time ago is the same time in both.
        assert len({wish["to"] for wish in wishes}) == 1
        assert 0 <= time.time() * 1000 - 30_000 - int(wishes[0]["to"].removeprefix("@")) < 60_000

    @pytest.mark.long
    def test_is_refused_where_nobody_can_be_asked(self) -> None:
        wishes: list[Any] = []
        with self._node(wishes) as node:
            ended = run("group", "reset", "a/b", "--to", "end", server=node.address)
        assert (ended.code, "give --yes" in ended.err, wishes) == (2, True, [])

    @pytest.mark.variants(1)
    @pytest.mark.parametrize("to", ["soon", "@", "@yesterday", "1.5"])
    def test_a_place_that_is_none(self, to: str) -> None:
        ended = run("group", "reset", "g", "--to", to, server="127.0.0.1:1")
        assert (ended.code, ended.err.count("\n"), ended.err.endswith("[usage]\n")) == (2, 1, True)
        assert "it must be start, end, an offset N" in ended.err


class TestOfANode:
    @pytest.fixture
    def group(self, duramen: Run, stream_name: str) -> str:
        """A group that has read four of six records, called as its stream."""
        duramen("stream", "create", stream_name)
        duramen("produce", stream_name, stdin=b"1\n2\n3\n4\n5\n6\n")
        ended = duramen("consume", stream_name, "--group", stream_name, "-n", "4")
        assert (ended.code, ended.out) == (0, "1\n2\n3\n4\n")
        return stream_name

    def _lag(self, duramen: Run, group: str) -> int:
        (offset,) = json.loads(duramen("group", "describe", group, "--format", "json").out)["offsets"]
        assert (offset["lag_seconds"] == 0) == (offset["lag_records"] == 0)
        return int(offset["lag_records"])

    def test_shown(self, duramen: Run, group: str) -> None:
        (line,) = [line.split() for line in duramen("group", "list").out.splitlines() if line.startswith(f"{group} ")]
        assert (line[1:3], line[-2:]) == (["classic", "Empty"], ["0", "2"])
        assert self._lag(duramen, group) == 2
        assert "Lag         2 records, " in duramen("group", "describe", group).out
        shown = duramen("stream", "describe", group).out
        assert shown.splitlines()[-1].split()[:3] == [group, "Empty", "2"]

    def test_reset(self, duramen: Run, group: str) -> None:
        planned = duramen("group", "reset", group, "--to", "start", "--dry-run")
        assert planned.out.splitlines()[1].split() == [group, "0", "4", "0"]
        assert self._lag(duramen, group) == 2
        before = 4
        for to, after in (("start", 0), ("-1", 5), ("end", 6), ("3", 3), ("@-1h", 0), ("@2999-01-01", 6)):
            words = ("--to", to, "--yes", "--stream", group, "--partition", "0", "--format", "json")
            ended = duramen("group", "reset", group, *words)
            assert (ended.code, ended.err) == (0, "")
            assert json.loads(ended.out) == [{"stream": group, "partition": 0, "before": before, "after": after}]
            before = after
        assert self._lag(duramen, group) == 0

    @pytest.mark.long
    def test_reset_of_what_is_not_there(self, duramen: Run, group: str) -> None:
        for words, id_ in (
            (("no-such-group", "--to", "start"), "group-not-found"),
            ((group, "--to", "start", "--stream", "no-such-stream"), "stream-not-found"),
            ((group, "--to", "start", "--stream", group, "--partition", "7"), "stream-not-found"),
        ):
            ended = duramen("group", "reset", *words, "--yes")
            assert (ended.code, ended.out, f"[{id_}]" in ended.err) == (1, "", True)

    def test_with_a_member(self, node: NodeProcess, duramen: Run, group: str) -> None:
        member = subprocess.Popen(
            [sys.executable, "-m", "duramen", "consume", group, "--group", group, "--follow"],
            stdout=subprocess.PIPE, env=command_environment(node.http), text=True,
        )  # fmt: skip
        with member:
            assert member.stdout is not None
            assert member.stdout.readline() == "5\n"
            for words in (("reset", group, "--to", "start"), ("delete", group)):
                ended = duramen("group", *words, "--yes")
                assert (ended.code, "[group-not-empty]" in ended.err) == (1, True)
            assert f" {group}:0" in duramen("group", "describe", group).out
            member.send_signal(signal.SIGINT)
            member.stdout.read()

    def test_deleted(self, duramen: Run, group: str) -> None:
        assert duramen("group", "delete", group, "--yes") == (0, f"Group {group} deleted.\n", "")
        assert "[group-not-found]" in duramen("group", "describe", group).err


def test_delete() -> None:
    answers: dict[str, Answer] = {"GET /v1/groups/a": (200, GROUP), "DELETE /v1/groups/a": (204, None)}
    with FakeNode(answers) as node:
        refused = run("group", "delete", "a", server=node.address)
        assert (refused.code, node.asked) == (2, [])
        assert run("group", "delete", "a", "--yes", server=node.address) == (0, "Group a deleted.\n", "")
        assert node.asked[-1] == "DELETE /v1/groups/a"
        assert run("group", "delete", "a", "--yes", "--format", "json", server=node.address).out == '{"deleted": "a"}\n'


@pytest.mark.long
def test_streams_show_the_groups_that_read_them() -> None:
    stream = {
        "name": "s", "id": "x", "internal": False, "created_at_ms": 0, "subjects": [], "durability": "os",
        "durability_means": "so", "config": {}, "partitions": [], "nats_gaps": None,
    }  # fmt: skip
    answers = {
        "GET /v1/streams/s": (200, stream),
        "GET /v1/cluster/nodes": (200, {"nodes": []}),
        "GET /v1/groups": (200, {"groups": GROUPS, "next": None}),
        "GET /v1/groups/a": (200, GROUP),
        "GET /v1/groups/b%20c": NOT_FOUND,
    }
    with FakeNode(answers) as node:
        said = run("stream", "describe", "s", server=node.address).out
        document = json.loads(run("stream", "describe", "s", "--format", "json", server=node.address).out)
    assert said.splitlines()[-1].split() == ["a", "Empty", "3", "1.5", "min"]
    assert document["groups"] == [{"id": "a", "state": "Empty", "offsets": GROUP["offsets"][:2]}]
    assert document["groups_missing"] == ""
    pages = {"groups": GROUPS, "next": None, "silent_nodes": [3], "leaderless_partitions": []}
    answers["GET /v1/groups"] = 200, pages
    answers["GET /v1/groups/b%20c"] = 503, {"type": "coordinator-loading", "detail": "so"}
    with FakeNode(answers) as node:
        said = run("stream", "describe", "s", server=node.address).out
        document = json.loads(run("stream", "describe", "s", "--format", "json", server=node.address).out)
    missing = "of nodes that did not respond: 3; of groups whose coordinator did not respond: b c"
    assert said.splitlines()[-1] == f"Groups may be missing: {missing}."
    assert document["groups_missing"] == missing
