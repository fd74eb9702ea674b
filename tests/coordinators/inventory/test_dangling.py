"""Names that are aliases of topics that were deleted with their namespaces: not created, and named with what to do."""

from collections.abc import Sequence

import msgspec
import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at
from tests.coordinators.inventory.several import SeveralInventories

from duramen.base.errors import TopicAliasDangling, TopicExists
from duramen.coordinators.inventory.cluster.requests import Changed, changed, read_response
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.inventory.directory import DeleteNamespace
from duramen.inventory.machine import Created, CreateTopics
from duramen.inventory.search import PageToken, TopicQuery

NAMES = ["alive", "dangling", *(f"t{number:02}" for number in range(40))]


def summary(made: CreatedNames) -> tuple[int, int, list[tuple[str, type]]]:
    return made.created, made.existing, [(problem.name, type(problem.error)) for problem in made.problems]


def prepared(shards: int) -> InventoryNode:
    """A node with two aliases in acme/dev: the topic of one is deleted with its namespace."""
    node = InventoryNode(shards=shards)
    node.create("bolt/dev", "a")
    node.create("acme/prod", "b")
    for alias, target in (("dangling", "bolt/dev/a"), ("alive", "acme/prod/b")):
        assert node.do(node.inventory.alias, ACCOUNT, at(f"acme/dev/{alias}"), at(target)) is None
    node.do(node.inventory.change, DeleteNamespace(node.namespace("bolt/dev").id))
    return node


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("names", [NAMES, NAMES[:2]])
def test_a_name_that_leads_nowhere_is_a_problem_until_it_is_deleted(shards: int, names: Sequence[str]) -> None:
    node = prepared(shards)
    lost = [("dangling", TopicAliasDangling)]
    assert summary(node.create("acme/dev", *names)) == (len(names) - 2, 1, lost)
    made = node.create("acme/dev", *names, names[-1])
    assert summary(made) == (0, len(names), lost)
    assert "`duramen topic delete acme/dev/dangling`" in str(made.problems[0].error)
    node.set("acme/dev", {"quota.topics": 100})
    assert summary(node.create("acme/dev", *names)) == (0, len(names) - 1, lost)
    node.create("acme/dev", "c")
    for target in ("alive", "dangling"):
        with pytest.raises(TopicExists, match=f"{target} is an alias already: `duramen topic delete`"):
            node.move("acme/dev/c", f"acme/dev/{target}")
    assert node.do(node.inventory.delete_topic, ACCOUNT, at("acme/dev/dangling")) is None
    assert summary(node.create("acme/dev", *names)) == (1, len(names) - 1, [])


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("limit", [1, 100])
def test_each_name_is_found_by_the_search_for_its_kind(shards: int, limit: int) -> None:
    node = prepared(shards)
    node.create("acme/dev", *NAMES)

    def found(**wanted: str) -> list[str]:
        query, names = TopicQuery(**wanted), list[str]()
        token: PageToken | None = PageToken()
        while token is not None:
            page = node.inventory.search(ACCOUNT, "acme", "", query, token, limit)
            token = page.token
            names += [f"{one.path.namespace}/{one.path.topic}" for one in page.topics]
            assert all(one.alias for one in page.topics) or "alias" not in wanted.get("kind", "")
        return names

    assert found(kind="dangling-alias") == found(kind="dangling-alias", prefix="d") == ["dev/dangling"]
    assert found(kind="dangling-alias", prefix="t") == found(kind="dangling-alias", policy="quota.topics") == []
    assert found(kind="alias") == ["dev/alive"]
    assert found(kind="topic") == [*(f"dev/{name}" for name in NAMES[2:]), "prod/b"]
    assert sorted([*found(), "dev/dangling"]) == [*(f"dev/{name}" for name in NAMES), "prod/b"]
    assert node.do(node.inventory.delete_topic, ACCOUNT, at("acme/dev/dangling")) is None
    assert found(kind="dangling-alias") == []


def test_nodes_without_the_shards_find_them_too() -> None:
    several = SeveralInventories()
    several.create(1, "bolt/dev", "a")
    several.create(2, "acme/prod", "b")
    several.alias(1, "acme/dev/dangling", "bolt/dev/a")
    several.alias(1, "acme/dev/alive", "acme/prod/b")
    gone = several.read(1, lambda inventory: inventory.namespace(ACCOUNT, "bolt", "dev"))
    several.do(1, lambda inventory: inventory.change, DeleteNamespace(gone.id))
    dev = several.read(1, lambda inventory: inventory.namespace(ACCOUNT, "acme", "dev"))
    wanted = TopicQuery(kind="dangling-alias")
    for node in (1, 2, 3):
        made = several.do(node, lambda inventory: inventory.create_topics, dev, NAMES)
        lost = [("dangling", TopicAliasDangling)]
        assert summary(made) == (len(NAMES) - 2 if node == 1 else 0, 1 if node == 1 else len(NAMES) - 1, lost)
        page = several.read(node, lambda inventory: inventory.search(ACCOUNT, "", "", wanted, PageToken(), 10))
        assert [str(one.path) for one in page.topics] == ["acme/dev/dangling"]


class OldChanged(msgspec.Struct, frozen=True, array_like=True):
    """`Changed` in versions that do not report aliases; `Created` had three fields."""

    epoch: int
    offset: int
    response: bytes


def test_nodes_of_other_versions_read_responses() -> None:
    command = CreateTopics(1, [])
    for made in (Created(5, 1, 3, []), Created(0, 0, 2, [b"a", b"b"])):
        answer = msgspec.msgpack.encode(changed(3, 4, made))
        assert read_response(command, msgspec.msgpack.decode(answer, type=Changed)) == made
        old = msgspec.msgpack.decode(answer, type=OldChanged)
        assert msgspec.msgpack.decode(old.response, type=tuple[int, int, int]) == made[:3]
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Changed)
        assert read_response(command, again) == made._replace(aliases=[])
