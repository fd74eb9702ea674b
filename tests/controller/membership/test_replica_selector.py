"""A consumer is sent to a node of its rack, and never to one that lacks what it asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.controller.membership.replica_selector import nearest
from duramen.metadata.nodes import Node

_HOLDERS = st.dictionaries(st.integers(1, 4), st.tuples(st.sampled_from(["a", "b", None]), st.integers(-1, 5)))


@given(_HOLDERS, st.sampled_from(["a", "b", ""]), st.integers(0, 5))
def test_who_is_named_is_near_and_has_it(holders: dict[int, tuple[str | None, int]], rack: str, offset: int) -> None:
    nodes = [Node(node_id, "", rack=of) for node_id, (of, _) in holders.items()]
    found = nearest(rack, offset, nodes, lambda node: holders[node.id][1])
    fit = {node_id: covered for node_id, (of, covered) in holders.items() if of == rack and covered >= offset}
    assert (found is None) is not bool(fit)
    if found is not None:
        assert fit[found] == max(fit.values())


@pytest.mark.parametrize(("offset", "found"), [(7, 2), (8, 2), (9, None)])
def test_the_end_of_what_it_has_is_enough(offset: int, found: int | None) -> None:
    assert nearest("b", offset, [Node(2, "", rack="b")], lambda _: 8) == found
