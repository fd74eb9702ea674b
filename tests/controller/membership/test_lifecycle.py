"""A node's way through a cluster: it registers, is live, fenced, drained, and told why it cannot take part."""

from tests.controller.active.node import SESSIONS, TIMING, ControlNode
from tests.controller.active.test_active import Cluster

from duramen.base.errors import ClusterDiffers, DuramenError, NodeDuplicate
from duramen.broker.control.requests import CreateStream, UnregisterNode
from duramen.broker.control.responses import Answer
from duramen.controller.dependencies import ControllerDependencies
from duramen.controller.membership.lifecycle import Lifecycle, LifecyclePhase
from duramen.metadata.decisions import Definition
from duramen.metadata.registration import Registration


def another(node: ControlNode, wish: Registration, errors: list[DuramenError]) -> Lifecycle:
    """A lifecycle of its own, beside that of the node."""
    assert node.controller is not None
    assert node.process is not None
    dependencies = ControllerDependencies(
        node.node_id, "c", node.clock, node.process.deadlines, node.randomness, node.chance.randrange, node,
        timing=TIMING,
    )  # fmt: skip
    return Lifecycle(wish, node.controller, node.asker, dependencies, failed=errors.append)


def test_nodes_that_only_follow_know_the_metadata_too() -> None:
    cluster = Cluster()
    made = cluster.ask(5, CreateStream(Definition("a", 1), 5))
    cluster.go_on(100)
    assert isinstance(made[0], Answer)
    for node in cluster.parts():
        assert node.controller is not None
        assert list(node.controller.state.streams) == ["a"]
    voters = cluster.part(4).runner
    assert voters is not None
    assert [voter.node_id for voter in voters.machine.voters.ids] == [1, 2, 3]


def test_a_node_hears_when_it_has_applied_a_change() -> None:
    cluster = Cluster()
    controller = cluster.part(4).controller
    assert controller is not None
    heard: list[int] = []
    controller.when_applied(controller.applied_offset, lambda: heard.append(1))
    controller.when_applied(controller.applied_offset + 2, lambda: heard.append(2))
    assert heard == [1]
    cluster.ask(4, CreateStream(Definition("a", 1), 1))
    cluster.go_on(100)
    assert heard == [1, 2]


def test_a_node_that_was_taken_out_takes_part_anew() -> None:
    cluster = Cluster()
    node = cluster.part(5)
    before = node.lifecycle.epoch
    cluster.pause(5, 700)
    cluster.go_on(600)
    cluster.ask(1, UnregisterNode(5))
    cluster.go_on(20)
    assert 5 not in cluster.auditor.state.registrations
    cluster.go_on(400)
    assert node.lifecycle.phase is LifecyclePhase.LIVE
    assert node.lifecycle.epoch > before


def test_a_node_knows_when_its_session_may_be_over() -> None:
    cluster = Cluster()
    node = cluster.part(5)
    told: list[bool] = []
    node.heard = told.append
    cluster.go_on(2 * SESSIONS.timeout_ms)
    assert told == []
    cluster.isolate(node)
    cluster.go_on(SESSIONS.timeout_ms // 2)
    assert told == []
    cluster.go_on(SESSIONS.timeout_ms)
    assert told == [False]
    cluster.cut = set()
    cluster.go_on(SESSIONS.timeout_ms)
    assert told == [False, True]


def test_a_node_of_another_cluster_is_told_so() -> None:
    cluster = Cluster()
    errors: list[DuramenError] = []
    stranger = another(cluster.part(4), Registration(9, "d", "i", "another"), errors)
    stranger.begin()
    cluster.go_on(100)
    assert [type(error) for error in errors] == [ClusterDiffers]
    assert stranger.phase is LifecyclePhase.JOINING


def test_an_id_that_is_taken_is_asked_for_until_it_cannot_be_its_own_past() -> None:
    cluster = Cluster()
    errors: list[DuramenError] = []
    rival = another(cluster.part(4), Registration(5, "d", "i", "c"), errors)
    rival.begin()
    cluster.go_on(TIMING.duplicate_ms - 100)
    assert errors == []
    cluster.go_on(1_000)  # it counts from the first answer
    assert [type(error) for error in errors] == [NodeDuplicate]


def test_a_blank_disk_takes_its_nodes_id_once_that_is_silent() -> None:
    cluster = Cluster()
    cluster.part(5).end()
    errors: list[DuramenError] = []
    blank = another(cluster.part(4), Registration(5, "d", "i", "c"), errors)
    blank.begin()
    cluster.go_on(1_000)
    assert errors == []
    assert blank.phase is LifecyclePhase.LIVE
    assert cluster.auditor.state.nodes[5] == "d"


def test_the_time_in_which_no_controller_answers_does_not_count_against_a_blank_disk() -> None:
    cluster = Cluster()
    errors: list[DuramenError] = []
    blank = another(cluster.part(4), Registration(5, "d", "i", "c"), errors)
    cluster.isolate(cluster.part(4))
    blank.begin()
    cluster.go_on(TIMING.duplicate_ms + 100)
    cluster.cut = set()
    cluster.go_on(500)  # the node's registration of before counts as live
    assert (errors, blank.phase) == ([], LifecyclePhase.JOINING)
    cluster.part(5).end()
    cluster.go_on(1_000)
    assert (errors, blank.phase) == ([], LifecyclePhase.LIVE)


def test_a_node_that_is_stopped_asks_for_nothing_more() -> None:
    cluster = Cluster()
    cluster.part(5).lifecycle.stop()
    cluster.go_on(600)
    assert 5 not in cluster.auditor.state.registrations.live
    cluster.part(5).lifecycle.drain()
    cluster.go_on(100)
    assert cluster.part(5).lifecycle.phase is LifecyclePhase.LIVE  # as it was last told
