"""Filters of searches beside a model: pages of every size find the same names, in order."""

import random
from itertools import product

import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at

from duramen.base.catalogue.inventory import TOPIC
from duramen.base.errors import RequestInvalid
from duramen.inventory.directory import UpdateNamespace, UpdateTenant
from duramen.inventory.search import PageToken, TopicQuery, check_query

NAMESPACES = ("acme/dev", "acme/prod", "bolt/dev", "bolt/prod")
LABELS = {"acme": {"team": "blue"}, "acme/dev": {"team": "red"}, "bolt/dev": {"stage": ""}}


class Filled:
    """An inventory, and what each of its names is: its kind, its durability, its own policies, and labels above it."""

    def __init__(self) -> None:
        self.node, chance = InventoryNode(), random.Random(5)
        self.names: dict[str, tuple[str, str, list[str], list[dict[str, str]]]] = {}
        for path, labels in LABELS.items():
            tenant = self.node.inventory.tenant(ACCOUNT, path.split("/")[0])
            change = (
                UpdateNamespace(self.node.namespace(path).id, tenant.id, None, labels) if "/" in path
                else UpdateTenant(tenant.id, ACCOUNT, None, labels)
            )  # fmt: skip
            self.node.do(self.node.inventory.change, change)
        for number, path in enumerate((*NAMESPACES, *NAMESPACES)):
            durability = "os" if number >= len(NAMESPACES) else "sync"
            self.node.set(path, {"durability": durability})
            above = [LABELS.get(path, {}), LABELS.get(path.split("/")[0], {})]
            for name in (f"t{count}-{durability}" for count in range(number, number + 3)):
                self.node.create(path, name)
                own = chance.choice(([], ["retention.ms"], ["retention.ms", "producer_byte_rate"]))
                self.node.set(f"{path}/{name}", dict.fromkeys(own, 1_000))
                self.names[f"{path}/{name}"] = (TOPIC, durability, own, above)
        for path in ("acme/dev/alias", "bolt/prod/t0-a"):
            target = chance.choice([*self.names])
            self.node.do(self.node.inventory.alias, ACCOUNT, at(path), at(target))
            above = [LABELS.get(path.rpartition("/")[0], {}), LABELS.get(path.split("/")[0], {})]
            self.names[path] = ("alias", *self.names[target][1:3], above)

    def expected(self, query: TopicQuery) -> list[str]:
        key, equals, value = query.label.partition("=")
        return sorted(
            path
            for path, (kind, durability, own, above) in self.names.items()
            if query.kind in ("", kind) and query.durability in ("", durability)
            and (not query.policy or query.policy in own)
            and (not key or any(key in one and (not equals or one[key] == value) for one in above))
        )  # fmt: skip

    def found(self, query: TopicQuery, limit: int) -> list[str]:
        found, token = list[str](), PageToken()
        while True:
            page = self.node.inventory.search(ACCOUNT, "", "", query, token, limit)
            assert len(page.topics) <= limit
            found += [str(one.path) for one in page.topics]
            if page.token is None:
                return found
            token = page.token


@pytest.fixture(scope="module")
def filled() -> Filled:
    return Filled()


def test_filters_together_find_what_passes_all(filled: Filled) -> None:
    labels = ("", "team", "team=blue", "team=red", "stage", "stage=", "stage=x", "none")
    policies = ("", "retention.ms", "producer_byte_rate", "retention.bytes")
    for label, kind, durability, policy in product(labels, ("", TOPIC, "alias"), ("", "sync", "os"), policies):
        query = TopicQuery(label=label, kind=kind, durability=durability, policy=policy)
        assert filled.found(query, 2) == filled.found(query, 100) == filled.expected(query), query


def test_what_cannot_be_filtered_by_is_named() -> None:
    for policy in ("quota.topics", "nothing"):
        with pytest.raises(RequestInvalid, match=f"{policy} is no policy that a topic can have: .*retention.ms"):
            check_query(TopicQuery(policy=policy))
