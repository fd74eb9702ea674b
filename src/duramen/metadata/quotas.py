"""Decides about client quotas: their entities, the existing ones, and the matches of a filter (KIP-546). Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from duramen.base.errors import RequestInvalid, UnsupportedFeature
from duramen.metadata.events import QuotasChanged
from duramen.metadata.state import ControllerState, Entity

__all__ = ["CONSUMER_RATE", "PRODUCER_RATE", "Component", "alter_quotas", "check_type", "entity_of", "find_quotas"]

PRODUCER_RATE: Final = "producer_byte_rate"
CONSUMER_RATE: Final = "consumer_byte_rate"

_ENTITY_TYPES: Final = ("client-id", "user")
_RATES: Final = (PRODUCER_RATE, CONSUMER_RATE)
# Kafka's other quotas, and why they do not exist here.
_NOT_MEASURED: Final[Mapping[str, str]] = {
    "request_percentage": "requests have no threads whose time could be shared out",
    "controller_mutation_rate": "creating and deleting topics is not limited",
    "connection_creation_rate": "new connections are not limited",
}
_LARGEST_RATE: Final = (1 << 63) - 1

Match = Literal["exact", "default", "any"]


class Component(NamedTuple):
    """A component of a filter: entities whose name of this type is `name`, is the default, or exists at all."""

    type: str
    match: Match
    name: str | None = None


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity of a quota, by types and names; None as a name is the default. Raises RequestInvalid."""
    entity = tuple(sorted(dict(parts).items()))
    if not entity:
        raise RequestInvalid("a quota belongs to a user, to a client-id, or to both")
    for kind, name in entity:
        if kind == "ip":
            raise RequestInvalid(
                f"quotas of the entity type ip do not exist here: {_NOT_MEASURED['connection_creation_rate']}"
            )
        if kind not in _ENTITY_TYPES:
            raise RequestInvalid(f"there is no entity type {kind!r}; there are {' and '.join(_ENTITY_TYPES)}")
        if name == "":
            raise RequestInvalid(f"the {kind} of a quota has no name")
    return entity


def alter_quotas(
    state: ControllerState, entity: Entity, changes: Sequence[tuple[str, float | None]]
) -> list[QuotasChanged]:
    """Set quotas by their names, in bytes per second; None removes one. Raises RequestInvalid with the reason."""
    values = dict(state.quotas.get(entity, {}))
    for name, value in changes:
        if name in _NOT_MEASURED:
            raise RequestInvalid(f"{name} cannot be set: {_NOT_MEASURED[name]}")
        if name not in _RATES:
            raise RequestInvalid(f"there is no quota {name!r}; there are {' and '.join(_RATES)}")
        if value is None:
            values.pop(name, None)
        else:
            values[name] = _checked(name, value)
    return [] if values == state.quotas.get(entity, {}) else [QuotasChanged(entity, values)]


def _checked(name: str, value: float) -> float:
    if not math.isfinite(value) or value != int(value) or not 0 < value <= _LARGEST_RATE:
        raise RequestInvalid(f"{name}: {value} does not fit; it must be a whole number of bytes a second above 0")
    return value


def check_type(kind: str, before: Sequence[str]) -> None:
    """Raise RequestInvalid or UnsupportedFeature unless a filter may have this type of entity after those before."""
    if not kind:
        raise RequestInvalid("a component of the filter has no entity type")
    if kind in before:
        raise RequestInvalid(f"the entity type {kind} is in the filter more than once")
    if kind not in (*_ENTITY_TYPES, "ip"):
        raise UnsupportedFeature(f"there is no entity type {kind}")


def find_quotas(
    state: ControllerState, components: Sequence[Component], *, strict: bool
) -> list[tuple[Entity, Mapping[str, float]]]:
    """The quotas of the entities that match every component; `strict`: of those without other types of names.

    Raises RequestInvalid, or UnsupportedFeature for an unknown type of entity.
    """
    types: list[str] = []
    for component in components:
        check_type(component.type, types)
        types.append(component.type)
    if "ip" in types and len(types) > 1:
        raise RequestInvalid("the entity type ip stands alone in a filter")
    return [
        (entity, values)
        for entity, values in state.quotas.items()
        if all(_fits(component, dict(entity)) for component in components)
        and not (strict and len(entity) != len(components))
    ]


def _fits(component: Component, names: Mapping[str, str | None]) -> bool:
    if component.type not in names:
        return False
    return component.match == "any" or names[component.type] == (component.name if component.match == "exact" else None)
