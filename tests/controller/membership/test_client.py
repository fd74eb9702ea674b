"""Requests find the active controller, are asked again where that does no harm, and end with what is true."""

from tests.controller.active.test_active import Cluster, create, kinds

from duramen.base.errors import NotController, OutcomeUnknown, ReplicationFactorInvalid
from duramen.broker.control.requests import AllocateProducerIds, AwaitApplied
from duramen.broker.control.responses import Answer


def test_any_node_takes_a_request_and_passes_it_on() -> None:
    cluster = Cluster()
    answers = [cluster.ask(node_id, create(f"s{node_id}")) for node_id in range(1, 6)]
    cluster.go_on(200)
    assert kinds(*answers) == [[Answer]] * 5
    assert sorted(cluster.auditor.state.streams) == ["s1", "s2", "s3", "s4", "s5"]


def test_a_refusal_comes_as_it_was_decided() -> None:
    cluster = Cluster()
    answers = cluster.ask(5, create("a", 1, 7))
    cluster.go_on(200)
    assert kinds(answers) == [[ReplicationFactorInvalid]]
    assert "needs as many nodes: 5 can" in str(answers[0])


def test_who_finds_no_leader_says_so_in_time() -> None:
    cluster = Cluster()
    for node_id in (1, 2, 3):
        cluster.part(node_id).end()
    cluster.go_on(1_000)
    answers = cluster.ask(4, create("a"), within_ms=200)
    cluster.go_on(190)
    assert answers == []
    cluster.go_on(20)
    assert kinds(answers) == [[NotController]]


def test_what_may_have_been_done_is_not_asked_again() -> None:
    cluster = Cluster()
    leader = cluster.leader.node_id
    cluster.cut = {(leader, 4)}  # it hears the request, and its answer is lost
    answers = cluster.ask(4, create("a"))
    cluster.go_on(400)
    assert kinds(answers) == [[OutcomeUnknown]]
    assert list(cluster.auditor.state.streams) == ["a"]


def test_what_does_no_harm_is_asked_the_next_controller() -> None:
    cluster = Cluster()
    old = cluster.leader
    cluster.isolate(old)
    ids = cluster.ask(4, AllocateProducerIds(), within_ms=3_000)
    cluster.go_on(50)
    assert ids == []
    cluster.go_on(1_500)
    assert kinds(ids) == [[Answer]]
    assert cluster.leader is not old


def test_a_closed_connection_ends_what_was_asked_there() -> None:
    cluster = Cluster()
    leader = cluster.leader.node_id
    cluster.cut = {(4, leader)}
    lost = cluster.ask(4, create("a"))
    waits = cluster.ask(4, AwaitApplied(0, 500))
    controller = cluster.part(4).controller
    assert controller is not None
    controller.closed(leader)
    assert kinds(lost) == [[OutcomeUnknown]]
    cluster.cut = set()
    cluster.go_on(100)
    assert kinds(waits) == [[Answer]]


def test_a_node_that_stops_answers_what_is_open() -> None:
    cluster = Cluster()
    cluster.isolate(cluster.part(4))
    answers = cluster.ask(4, create("a"))
    cluster.part(4).asker.stop()
    assert kinds(answers) == [[OutcomeUnknown]]
