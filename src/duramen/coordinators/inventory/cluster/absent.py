"""What the inventory of a cluster has not: policies, their quotas, subscriptions to changes, and NATS subjects."""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from duramen.base.errors import RequestInvalid
from duramen.coordinators.inventory.feed import InventoryFeed
from duramen.coordinators.inventory.policies import InventoryPolicies
from duramen.coordinators.inventory.quotas import EntryName, InventoryQuotas
from duramen.coordinators.inventory.shards import Done
from duramen.inventory.feed import FeedScope
from duramen.inventory.policies import PolicyChange

__all__ = ["STANDALONE", "NoFeed", "NoPolicies", "NoQuotas"]

STANDALONE: Final = "of the inventory are for standalone nodes: this node is part of a cluster"


class NoQuotas(InventoryQuotas):
    """Nothing is bounded."""

    def produced(self, account: str, topic: EntryName, size: int) -> int:
        """As of `InventoryQuotas`."""
        del account, topic, size
        return 0

    def consumed(self, account: str, topic: EntryName, size: int) -> int:
        """As of `InventoryQuotas`."""
        del account, topic, size
        return 0


class NoPolicies(InventoryPolicies):
    """There are none, and none can be set."""

    def find(self, account: str, path: Sequence[str]) -> NoReturn:
        """As of `InventoryPolicies`. Raises RequestInvalid."""
        del account, path
        raise RequestInvalid(f"policies {STANDALONE}")

    def creates_topics(self, account: str, tenant: str, namespace: str) -> bool:
        """As of `InventoryPolicies`."""
        del account, tenant, namespace
        return False

    def change(self, account: str, path: Sequence[str], changes: PolicyChange, done: Done) -> None:
        """As of `InventoryPolicies`; `done` gets RequestInvalid."""
        del account, path, changes
        done(RequestInvalid(f"policies {STANDALONE}"))


class NoFeed(InventoryFeed):
    """Nothing can be followed."""

    def poll(
        self, scope: Callable[[], FeedScope], position: str, limit: int, wait_ms: int, done: Done
    ) -> Callable[[], None]:  # fmt: skip
        """As of `InventoryFeed`; `done` gets RequestInvalid."""
        del scope, position, limit, wait_ms
        done(RequestInvalid(f"subscriptions to changes {STANDALONE}"))
        return _nothing


def _nothing() -> None:
    """Nobody waits."""
