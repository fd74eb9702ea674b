"""Sessions: who counts as live, when it is over, and who knows of the metadata."""

import hypothesis.strategies as st
from hypothesis import given
from tests.metadata.cluster.building import site_with

from duramen.metadata.fencing import fence
from duramen.metadata.sessions import Membership, Sessions

SESSIONS = Sessions(timeout_ms=100, grace_ms=10, absent_ms=40)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["heard", "closed", "absent", "renewed", "pass"]), st.integers(1, 3), st.integers(0, 60))
)


@given(EVENTS)
def test_a_node_is_live_for_a_session_after_it_was_heard_and_for_a_grace_after_it_went(
    events: list[tuple[str, int, int]],
) -> None:
    nodes = site_with(None, None, None).state.registrations
    membership, now_ms = Membership(nodes, 0, SESSIONS), 0
    until_ms = dict.fromkeys((1, 2, 3), 100)
    closed: dict[int, int] = {}
    for what, node_id, for_ms in events:
        if what == "heard":
            membership.heard(node_id, now_ms, 0)
            until_ms[node_id] = now_ms + 100
            closed.pop(node_id, None)
        elif what in ("closed", "absent"):
            getattr(membership, what)(node_id, now_ms)
            closed[node_id] = 10 if what == "closed" else 40
            until_ms[node_id] = min(until_ms[node_id], now_ms + closed[node_id])
        elif what == "renewed":
            membership = membership.renewed(nodes, now_ms)
            until_ms = {one: now_ms + closed.get(one, 100) for one in until_ms}
        else:
            now_ms += for_ms
        live = {node_id for node_id in until_ms if membership.is_live(node_id, now_ms)}
        assert live == {node_id for node_id, end_ms in until_ms.items() if now_ms < end_ms}
        assert set(membership.silent(now_ms)) == until_ms.keys() - live
        assert membership.deadline_ms == min(until_ms.values())


def test_a_controller_that_begins_to_lead_waits_a_whole_session_for_those_that_are_not_fenced() -> None:
    site = site_with(None, None)
    node = site.state.registrations.get(2)
    assert node is not None
    site.commit(fence(site.state, node))
    membership = Membership(site.state.registrations, 50, SESSIONS)
    assert (membership.silent(149), membership.silent(150)) == ([], [1])
    assert not membership.is_live(2, 50)
    membership.ended(1)
    assert membership.deadline_ms is None


def test_who_knows_of_the_metadata() -> None:
    membership = Membership(site_with(None, None).state.registrations, 0, SESSIONS)
    membership.heard(1, 0, 7)
    membership.heard(1, 0, 5)
    assert membership.know([1], 7)
    assert not membership.know([1], 8)
    assert not membership.know([1, 2], 7)
    assert not membership.know([3], 0)
    assert membership.know([], 99)


def test_the_offset_of_a_drain_is_that_of_its_beginning() -> None:
    membership = Membership(site_with(None).state.registrations, 0, SESSIONS)
    assert [membership.drains(1, offset) for offset in (5, 9)] == [5, 5]
    membership.registered(1, 0)
    assert membership.drains(1, 9) == 9
