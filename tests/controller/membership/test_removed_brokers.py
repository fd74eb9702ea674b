"""Clients are told of a node for a while after it was fenced, and of none that never came or was taken out."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.controller.membership.removed_brokers import SHOWN_MS, RemovedBrokers
from duramen.metadata.nodes import Node

_STEPS = st.lists(
    st.tuples(st.integers(0, SHOWN_MS), st.dictionaries(st.integers(1, 3), st.booleans(), max_size=3)), max_size=8
)


def _nodes(fenced: dict[int, bool]) -> list[Node]:
    return [Node(node_id, "", fenced=is_fenced) for node_id, is_fenced in sorted(fenced.items())]


@given(_STEPS)
def test_a_node_is_named_until_it_was_fenced_for_long(steps: list[tuple[int, dict[int, bool]]]) -> None:
    removed, now_ms = RemovedBrokers(), 0
    since_ms: dict[int, int] = {}
    for later_ms, fenced in steps:
        now_ms += later_ms
        removed.update(_nodes(fenced), now_ms)
        since_ms = {one: since_ms.get(one, now_ms) for one, is_fenced in fenced.items() if is_fenced}
        for at_ms in (now_ms, now_ms + SHOWN_MS - 1, now_ms + SHOWN_MS):
            expected = sorted(one for one in fenced if at_ms - since_ms.get(one, at_ms) < SHOWN_MS)
            assert [node.id for node in removed.shown(_nodes(fenced), at_ms)] == expected


def test_a_node_that_comes_back_is_named_as_long_the_next_time() -> None:
    removed = RemovedBrokers()
    for fenced, now_ms in ((True, 0), (False, SHOWN_MS), (True, SHOWN_MS + 1)):
        removed.update(_nodes({1: fenced}), now_ms)
    assert removed.shown(_nodes({1: True}), 2 * SHOWN_MS)
    assert not removed.shown(_nodes({1: True}), 2 * SHOWN_MS + 1)
