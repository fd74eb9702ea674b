"""Steps of changes of topics: their content, and joint decisions about many of them on rows that are read ahead.

Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

from duramen.base.errors import CoordinatorLoading, DuramenError, StorageFailed
from duramen.base.ports import StateRows
from duramen.inventory.events import InventoryEvent, NameChanged, NamesChanged, PendingChange
from duramen.inventory.name_rows import RowsReadAhead, changed_row
from duramen.inventory.rows import (
    NameRow,
    Place,
    dropped_key,
    pending_key,
    place_key,
)

__all__ = [
    "AddAlias", "BeginChange", "BindName", "ChangeStep", "EndChange", "MoveWithin", "PlaceTopic", "RemoveAlias",
    "RemoveTopic", "StepsTogether", "TopicStep", "decide_together", "names_of", "subjects_of",
]  # fmt: skip


class BeginChange(NamedTuple):
    """Mark the name of a topic or an alias; the response is its previous row, and the change.

    For `kind` see `PendingChange`.
    """

    namespace: int
    name: bytes
    kind: str
    to_namespace: int = 0
    to_name: bytes = b""
    keep_alias: bool = False


class MoveWithin(NamedTuple):
    """Like BeginChange for a move to another name of this shard. A topic that this shard has created is moved at once.

    Then there is no response.
    """

    namespace: int
    name: bytes
    to_namespace: int
    to_name: bytes
    keep_alias: bool = False


class BindName(NamedTuple):
    """Bind a marked name to a topic, valid once the topic's own shard decides so."""

    namespace: int
    name: bytes
    row: NameRow
    pending: PendingChange


class EndChange(NamedTuple):
    """End the change of a name; its row becomes this, None: it is removed."""

    namespace: int
    name: bytes
    row: NameRow | None
    pending: PendingChange


class PlaceTopic(NamedTuple):
    """Rename a topic that this shard has created from `origin`, which may stay as an alias.

    `ends`: this shard has the name `origin` too, and the change of that ends as well.
    """

    sequence: int
    origin: Place
    place: Place
    keep_alias: bool = False
    ends: bool = False


class RemoveTopic(NamedTuple):
    """Delete a topic that this shard has created, and that has the name `origin`. Refused if it has aliases."""

    sequence: int
    origin: Place


class AddAlias(NamedTuple):
    """Add an alias to a topic that this shard has created."""

    sequence: int
    namespace: int
    name: bytes


class RemoveAlias(NamedTuple):
    """Remove an alias."""

    sequence: int
    namespace: int
    name: bytes


# Names for unions, because one that is written in place is made again by each evaluation.
_NameStep: TypeAlias = BeginChange | BindName | EndChange
_ReadNameStep: TypeAlias = BeginChange | BindName
TopicStep: TypeAlias = PlaceTopic | RemoveTopic | AddAlias | RemoveAlias
ChangeStep: TypeAlias = _NameStep | MoveWithin | TopicStep


class StepsTogether(NamedTuple):
    """Steps of changes, no two of the same name or topic: the response has that of each, or its refusal."""

    steps: Sequence[ChangeStep]


Decide = Callable[[ChangeStep, StateRows], tuple[Sequence[InventoryEvent], object]]


def names_of(step: ChangeStep) -> tuple[tuple[int, bytes], ...]:
    """The names whose rows a step changes."""
    if isinstance(step, _NameStep):
        return ((step.namespace, step.name),)
    if isinstance(step, MoveWithin):
        return (step.namespace, step.name), (step.to_namespace, step.to_name)
    return (step.origin,) if isinstance(step, PlaceTopic) and step.ends else ()


def subjects_of(step: ChangeStep) -> tuple[Hashable, ...]:
    """The names and the topic of a step."""
    if isinstance(step, TopicStep):
        return (step.sequence, *names_of(step))
    return names_of(step)


def _read_ahead(steps: Sequence[ChangeStep], rows: StateRows) -> RowsReadAhead:
    """Rows with everything that the steps need read ahead."""
    found, keys = RowsReadAhead(rows), list[bytes]()
    names, removed, origins = list[tuple[int, bytes]](), set[tuple[int, bytes]](), set[int]()
    for step in steps:
        names += names_of(step)
        if isinstance(step, _ReadNameStep):
            continue
        if isinstance(step, EndChange):
            keys.append(pending_key(step.namespace, step.name))
            if step.row is None:
                removed.add((step.namespace, step.name))
        elif isinstance(step, MoveWithin):
            removed.add((step.namespace, step.name))
        elif isinstance(step, PlaceTopic) and step.ends:
            keys.append(pending_key(*step.origin))
            removed.add(step.origin)
        else:
            keys.append(place_key(step.sequence))
            if isinstance(step, PlaceTopic):
                origins.add(step.origin.namespace)
    found.read([*keys, *map(dropped_key, {*origins, *(namespace for namespace, _ in names)})])
    found.read_names(names, removed)
    return found


def decide_together(
    steps: Sequence[ChangeStep], rows: StateRows, decide: Decide
) -> tuple[list[InventoryEvent], object]:
    """The events of steps, and their responses. The changes of names are one event."""
    known = _read_ahead(steps, rows)
    made, names, responses = list[InventoryEvent](), list[NameChanged](), list[object]()
    for step in steps:
        try:
            events, response = decide(step, known)
        except (CoordinatorLoading, StorageFailed):
            raise  # the rows cannot be read: no step is executed
        except DuramenError as error:
            responses.append(error)
            continue
        for event in events:
            if isinstance(event, NameChanged):
                names.append(event)
            else:
                made.append(event)
        responses.append(response)
    if names:
        made.append(_names_changed(names, known))
    return made, responses


def _names_changed(names: Sequence[NameChanged], rows: StateRows) -> NamesChanged:
    found, counts = list[tuple[int, bytes, bytes | None, bytes | None]](), defaultdict[int, int](int)
    for one in names:
        value, more = changed_row(rows, one.namespace, one.name, one.value)
        found.append((one.namespace, one.name, value, one.pending))
        if more:
            counts[one.namespace] += more
    return NamesChanged(found, [*counts.items()])
