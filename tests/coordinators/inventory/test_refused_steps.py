"""Changes whose steps are refused from some step on: an error that says that nothing was done keeps its word."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at
from tests.sim.planted import Bug, Place, planted

from duramen.base.errors import DuramenError, NodeStopping, OutcomeUnknown, StorageFull
from duramen.coordinators.inventory.changing import Change
from duramen.coordinators.inventory.moves import TopicMove
from duramen.inventory.search import PageToken, TopicQuery
from duramen.sim.broker import CallbackResult

NAMES = tuple(f"{letter}{number}" for letter in "ab" for number in range(3))
ERRORS = (NodeStopping("this node is stopping"), StorageFull("the disk is full"))
Outcome = dict[str, DuramenError | None]
"""The outcome of each changed name."""


def outcome_of(node: InventoryNode, taken: int, error: DuramenError, ask: Callable[..., object], *what: Any,
               **more: Any) -> Any:  # fmt: skip
    """What is answered if the shards take so many groups of steps, and refuse all later ones until it is answered."""
    shards, steps = node.inventory.shards, 0
    submit = shards.submit_steps

    def counted(shard: int, some: Sequence[Any], done: Callable[[Sequence[Any]], None]) -> None:
        nonlocal steps
        steps += 1
        if steps > taken:
            done([error] * len(some))
        else:
            submit(shard, some, done)

    answer: CallbackResult[Any] = CallbackResult()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "submit_steps", counted)
        ask(*what, answer, **more)
        node.hand.settle()
    node.hand.advance(20_000)
    try:
        return answer.value
    except DuramenError as found:
        return found


def move_all(to: str, *, keep_alias: bool) -> Callable[[InventoryNode, int, DuramenError], Outcome]:
    def change(node: InventoryNode, taken: int, error: DuramenError) -> Outcome:
        moves = [TopicMove(at(f"acme/dev/{name}"), at(to.format(name)), keep_alias) for name in NAMES]
        problems = outcome_of(node, taken, error, node.inventory.move_topics, ACCOUNT, moves)
        return dict.fromkeys(NAMES) | {problem.name: problem.error for problem in problems}

    return change


def move_one(node: InventoryNode, taken: int, error: DuramenError) -> Outcome:
    ask = node.inventory.move_topic
    return {"a0": outcome_of(node, taken, error, ask, ACCOUNT, at("acme/dev/a0"), at("bolt/dev/z"), keep_alias=False)}


def delete(node: InventoryNode, taken: int, error: DuramenError) -> Outcome:
    return {"a0": outcome_of(node, taken, error, node.inventory.delete_topic, ACCOUNT, at("acme/dev/a0"))}


def delete_alias(node: InventoryNode, taken: int, error: DuramenError) -> Outcome:
    return {"alias": outcome_of(node, taken, error, node.inventory.delete_topic, ACCOUNT, at("acme/dev/alias"))}


def alias(node: InventoryNode, taken: int, error: DuramenError) -> Outcome:
    ask = node.inventory.alias
    return {"new": outcome_of(node, taken, error, ask, ACCOUNT, at("acme/dev/new"), at("acme/dev/a0"))}


CHANGES = {
    "rename": move_all("acme/dev/{}-new", keep_alias=False), "move": move_all("bolt/prod/{}", keep_alias=False),
    "keep": move_all("bolt/prod/{}", keep_alias=True), "move one": move_one, "delete": delete,
    "delete alias": delete_alias, "alias": alias,
}  # fmt: skip


def names(node: InventoryNode) -> dict[str, Any]:
    """The names in acme/dev, and what they are."""
    page = node.do(
        node.inventory.read, lambda: node.inventory.search(ACCOUNT, "acme", "dev", TopicQuery(), PageToken(), 1000)
    )
    return {one.path.topic: (one.id, one.alias) for one in page.topics}


@pytest.mark.parametrize("change", CHANGES)
def test_an_error_that_leaves_nothing_open_means_that_nothing_was_done(change: str) -> None:
    ended = 0
    for taken in range(11):
        node, error = InventoryNode(taken, shards=2), ERRORS[taken % 2]
        node.create("acme/dev", *NAMES)
        assert node.do(node.inventory.alias, ACCOUNT, at("acme/dev/alias"), at("acme/dev/b2")) is None
        before = names(node)
        outcomes = CHANGES[change](node, taken, error)
        after = names(node)
        for name, outcome in outcomes.items():
            if outcome is None:
                assert before.get(name) != after.get(name), (taken, name)
            elif not isinstance(outcome, OutcomeUnknown):
                assert type(outcome) is type(error)
                assert before.get(name) == after.get(name), (taken, name)
        untouched = before.keys() - outcomes.keys()
        assert {name: before[name] for name in untouched} == {name: after.get(name) for name in untouched}
        # What was open has ended by now: the name can be changed again.
        for name in outcomes.keys() & after.keys():
            if not after[name][1]:
                node.move(f"acme/dev/{name}", f"acme/dev/{name}-again")
        ended += not any(outcomes.values())
    assert ended


def _done_as_refused(_: Callable[..., Any]) -> Callable[..., Any]:
    def _left(self: Any, error: DuramenError) -> None:
        self._done(error)

    return _left


def test_a_planted_bug_is_found() -> None:
    with planted(Bug("refused", "", (Place(Change, "_left", _done_as_refused),))), pytest.raises(AssertionError):
        test_an_error_that_leaves_nothing_open_means_that_nothing_was_done("move one")
