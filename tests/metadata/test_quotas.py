"""Which client quotas can be set, and which a filter finds; against the plain dictionary they add up to."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid, UnsupportedFeature
from duramen.metadata.events import decode_event, encode_event
from duramen.metadata.quotas import Component, alter_quotas, entity_of, find_quotas
from duramen.metadata.state import ControllerState, Entity

NAMES = st.sampled_from([None, "a", "b"])
ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id"]), NAMES, min_size=1).map(
    lambda parts: entity_of(parts.items())
)
RATES = st.sampled_from(["producer_byte_rate", "consumer_byte_rate"])
CHANGES = st.dictionaries(RATES, st.none() | st.integers(1, 1 << 40).map(float))
COMPONENTS = st.lists(
    st.builds(
        lambda kind, match, name: Component(kind, match, name if match == "exact" else None),
        st.sampled_from(["user", "client-id"]), st.sampled_from(["exact", "default", "any"]), st.sampled_from("abc"),
    ),
    unique_by=lambda component: component.type,
)  # fmt: skip


def _fits(component: Component, entity: Entity) -> bool:
    names = dict(entity)
    wanted = {"exact": (component.name,), "default": (None,), "any": (None, "a", "b")}[component.match]
    return component.type in names and names[component.type] in wanted


@given(wishes=st.lists(st.tuples(ENTITIES, CHANGES), max_size=8), components=COMPONENTS, strict=st.booleans())
def test_quotas_add_up_and_are_found(
    wishes: list[tuple[Entity, dict[str, float | None]]], components: list[Component], strict: bool
) -> None:
    state, model = ControllerState(), dict[Entity, dict[str, float]]()
    for entity, changes in wishes:
        events = alter_quotas(state, entity, list(changes.items()))
        for event in events:
            state.apply(decode_event(encode_event(event)))
        kept = {name: value for name, value in {**model.pop(entity, {}), **changes}.items() if value is not None}
        if kept:
            model[entity] = kept
    assert state.quotas == state.copy().quotas == model
    assert dict(find_quotas(state, components, strict=strict)) == {
        entity: values for entity, values in model.items()
        if all(_fits(component, entity) for component in components)
        and not (strict and {kind for kind, _ in entity} != {component.type for component in components})
    }  # fmt: skip


@pytest.mark.parametrize("value", [0.0, -5.0, 1000.5, 1e30, float("nan"), float("inf")])
def test_a_rate_is_a_whole_number_of_bytes(value: float) -> None:
    with pytest.raises(RequestInvalid, match="producer_byte_rate"):
        alter_quotas(ControllerState(), (("user", "u"),), [("producer_byte_rate", value)])


@pytest.mark.parametrize(
    "name", ["request_percentage", "controller_mutation_rate", "connection_creation_rate", "no_such_rate"]
)
def test_what_is_not_limited_is_refused_by_name(name: str) -> None:
    for value in (1.0, None):
        with pytest.raises(RequestInvalid, match=name):
            alter_quotas(ControllerState(), (("user", "u"),), [(name, value)])


def test_entities_that_cannot_be() -> None:
    wrong: list[tuple[list[tuple[str, str | None]], str]] = [
        ([], "belongs to"), ([("user", "")], "no name"), ([("ip", "1.2.3.4")], "ip"), ([("who", "x")], "who"),
        ([("user", "u"), ("ip", "1.2.3.4")], "ip"), ([("", "x")], "entity type"),
    ]  # fmt: skip
    for parts, hint in wrong:
        with pytest.raises(RequestInvalid, match=hint):
            entity_of(parts)


def test_filters_that_cannot_be() -> None:
    state = ControllerState()
    for kinds in (["user", "user"], [""], ["ip", "user"]):
        with pytest.raises(RequestInvalid):
            find_quotas(state, [Component(kind, "any") for kind in kinds], strict=False)
    with pytest.raises(UnsupportedFeature):
        find_quotas(state, [Component("who", "any")], strict=False)
    assert find_quotas(state, [Component("ip", "any")], strict=False) == []
    assert [strict for strict, _ in product((True, False), repeat=2) if find_quotas(state, [], strict=strict)] == []
