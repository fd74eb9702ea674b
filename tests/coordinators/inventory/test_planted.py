"""The models of policies, quotas and subscriptions find bugs that are planted."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pytest
from tests.coordinators.inventory import test_cluster_feed, test_cluster_policies, test_feed, test_policies
from tests.sim.planted import Bug, Place, planted

from duramen.coordinators.inventory.cluster.feed import ClusterFeed
from duramen.coordinators.inventory.cluster.policies import ClusterPolicies
from duramen.coordinators.inventory.quotas import InventoryQuotas
from duramen.inventory.directory import Directory
from duramen.inventory.machine import TopicShardState
from duramen.inventory.policies import PolicyTable

Original = Callable[..., Any]


def _forget_policies(original: Original) -> Original:
    def load(self: Directory, rows: Any) -> None:
        original(self, rows)
        self.policies = PolicyTable()

    return load


def _reserve_nothing(_: Original) -> Original:
    def _count(
        self: Any, chain: Callable[[], Any], more: int, then: Callable[[Any], None], done: Callable[[Any], None]
    ) -> None:
        del more
        found = self._bounds(chain, fresh=True)[1]
        bounds = [bound._replace(used=bound.used - self._under_way.get(bound.limit.scope, 0)) for bound in found]
        self._most |= {bound.limit.scope: bound.used for bound in bounds}
        then(bounds)
        del done

    return _count


def _tell_arrivals_only(original: Original) -> Original:
    def _place(self: Any, command: Any, rows: Any, row: Any = None) -> tuple[Sequence[Any], object]:
        events, response = original(self, command, rows, row)
        return [type(event)(*(getattr(event, name) for name in _PLACED)) for event in events], response

    return _place


def _drop_the_last(original: Original) -> Original:
    def ask(self: Any, request: Any, done: Callable[[Any], None]) -> None:
        def answered(answer: Any) -> None:
            done(msgspec.structs.replace(answer, changes=answer.changes[:-1]))

        original(self, request, answered)

    return ask


def ask_nobody(_: Original) -> Original:
    def when_effective(
        self: Any, shard: int, place: tuple[int, int], wait_ms: int, done: Callable[[Any], None]
    ) -> None:  # fmt: skip
        del self, shard, place, wait_ms
        done([1, 2, 3])

    return when_effective


_PLACED: Final = ("sequence", "namespace", "name", "alias_namespace", "alias")
BUGS: Final = (
    (
        Bug("policies-forgotten", "", (Place(Directory, "load", _forget_policies),), "a start forgets policies"),
        lambda: [test_policies.test_policies_are_what_dicts_say_through_crashes(seed) for seed in range(5)],
    ),
    (
        Bug("room-given-twice", "", (Place(InventoryQuotas, "_count", _reserve_nothing),), "quotas are exceeded"),
        test_policies.test_a_quota_of_topics_is_never_exceeded_and_leaves_no_room_unused,
    ),
    (
        Bug("departures-untold", "", (Place(TopicShardState, "_place", _tell_arrivals_only),), "a move is not told"),
        lambda: [test_feed.test_what_is_told_leads_to_what_is_there(seed) for seed in range(4)],
    ),
    (
        Bug("last-untold", "", (Place(ClusterFeed, "ask", _drop_the_last),), "a leader does not tell of a change"),
        lambda: test_cluster_feed.test_what_is_told_leads_to_what_is_there(0),
    ),
    (
        Bug("effective-early", "", (Place(ClusterPolicies, "when_effective", ask_nobody),), "nodes are not asked"),
        test_cluster_policies.test_every_node_applies_what_is_told_to_be_effective,
    ),
)


@pytest.mark.parametrize(("bug", "model"), BUGS, ids=lambda one: one.name if isinstance(one, Bug) else "")
def test_a_planted_bug_is_found(bug: Bug, model: Callable[[], object]) -> None:
    with planted(bug), pytest.raises(AssertionError):
        model()
