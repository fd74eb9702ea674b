"""Creation of topics over aliases of topics that were deleted with their namespaces."""

from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.errors import DuramenError, TopicAliasDangling
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.inventory.events import NamespacePut
from duramen.inventory.names import NamedProblem, TopicPath

__all__ = ["refuse_dangling", "why_dangling"]

_LOOKED_UP_AT_ONCE: Final = 1000


def refuse_dangling(shards: InventoryShards, namespace: NamespacePut, done: Done) -> Callable[[CreatedNames], None]:
    """`done` for the outcome of a creation: an existing name that resolves to no topic is a problem."""

    def created(made: CreatedNames) -> None:
        def found(dangling: Sequence[NamedProblem] | DuramenError) -> None:
            if isinstance(dangling, DuramenError):
                done(dangling)
            else:
                done(CreatedNames(made.created, made.existing - len(dangling), [*made.problems, *dangling]))

        if made.aliases:
            shards.read(lambda: _dangling(shards, namespace, made.aliases), found)
        else:
            done(made)

    return created


def _dangling(shards: InventoryShards, namespace: NamespacePut, aliases: Sequence[bytes]) -> list[NamedProblem]:
    rows, tenant, found = shards.rows(), shards.directory().tenant_by_id(namespace.tenant), list[NamedProblem]()
    for at in range(0, len(aliases), _LOOKED_UP_AT_ONCE):
        some = aliases[at : at + _LOOKED_UP_AT_ONCE]
        topics = rows.find_many(namespace.id, some)
        for alias, topic in zip(some, topics, strict=True):
            if topic is None and rows.is_dangling(namespace.id, alias):
                path = TopicPath("" if tenant is None else tenant.name, namespace.name, alias.decode())
                found.append(NamedProblem(path.topic, TopicAliasDangling(why_dangling(path))))
    return found


def why_dangling(path: TopicPath) -> str:
    """What an alias without a topic is, and how its name becomes free."""
    return (
        f"{path} is an alias of a topic that was deleted with its namespace: `duramen topic delete {path}` frees the"
        " name"
    )
