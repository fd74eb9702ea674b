"""Polls that follow an entity of the inventory: they end once it is gone, and not while that is unknown."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, StateDamaged, TopicNotFound
from duramen.coordinators.inventory.feed import ChangePage
from duramen.doors.inventory.changes import poll
from duramen.inventory.feed import FeedScope

SCOPE = FeedScope("default", 1)
GONE, DAMAGED = TopicNotFound("gone"), StateDamaged("damaged")
CHECKS = st.sampled_from([None, GONE, DAMAGED, CoordinatorLoading("soon"), NotCoordinator("no leader")])


@given(st.lists(st.booleans(), max_size=4), CHECKS, st.sampled_from([0, 1000]))
def test_a_poll_ends_with_what_is_known_of_its_entity(
    pages: Sequence[bool], check: DuramenError | None, wait_ms: int
) -> None:
    """`pages`: whether the next pages have changes."""
    coming, waits = [*pages], list[int]()

    def feed(_scope: object, position: str, _limit: int, wait: int, done: Callable[[Any], None]) -> Callable[[], None]:
        waits.append(wait)
        changes: Any = ["change"] if coming and coming.pop(0) else []
        done(ChangePage(changes, position + "1", SCOPE))
        return lambda: None

    inventory = SimpleNamespace(
        feed=SimpleNamespace(poll=feed), check_followed=lambda _: None, read=lambda _, done: done(check)
    )
    broker: Any = SimpleNamespace(inventory=inventory)
    asked = poll(broker, set(), lambda: SCOPE, "1", 10, wait_ms, by_id=True)
    # The page of one that is gone is read again, without a wait; the page of another is waited for.
    reads = 2 if check is GONE or (wait_ms and check is not DAMAGED) else 1
    if check in (GONE, DAMAGED) and not any(pages[:reads]):
        with pytest.raises(type(check)):
            asyncio.run(asked)
    else:
        assert bool(asyncio.run(asked).changes) is any(pages[:reads])
    assert waits == [0, 0 if check is GONE else wait_ms][: 1 if any(pages[:1]) else reads]
