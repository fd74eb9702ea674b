"""Strongly connected components of a directed graph (Tarjan 1972), without recursion."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

__all__ = ["cycles"]


def cycles(edges: Mapping[int, AbstractSet[int]]) -> list[list[int]]:
    """The components of more than one node: each has a cycle through all of its nodes' company."""
    indexes: dict[int, int] = {}
    lows: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in edges:
        if root in indexes:
            continue
        work: list[tuple[int, Iterator[int]]] = []
        _enter(root, edges, indexes, lows, stack, on_stack, work)
        while work:
            node, following = work[-1]
            for after in following:
                if after not in indexes:
                    _enter(after, edges, indexes, lows, stack, on_stack, work)
                    break
                if after in on_stack:
                    lows[node] = min(lows[node], indexes[after])
            else:
                work.pop()
                if work:
                    lows[work[-1][0]] = min(lows[work[-1][0]], lows[node])
                if lows[node] == indexes[node]:
                    component = _component(node, stack, on_stack)
                    if len(component) > 1:
                        found.append(sorted(component))
    return found


def _enter(
    node: int, edges: Mapping[int, AbstractSet[int]], indexes: dict[int, int], lows: dict[int, int], stack: list[int],
    on_stack: set[int], work: list[tuple[int, Iterator[int]]],
) -> None:  # fmt: skip
    indexes[node] = lows[node] = len(indexes)
    stack.append(node)
    on_stack.add(node)
    work.append((node, iter(sorted(edges.get(node, frozenset())))))


def _component(node: int, stack: list[int], on_stack: set[int]) -> list[int]:
    component = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        component.append(member)
        if member == node:
            return component
