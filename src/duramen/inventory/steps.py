"""Steps of changes of topics: their content, and joint decisions about many of them on rows that are read ahead.

Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

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
    "RemoveTopic", "StepsTogether", "TopicStep", "decide_together", "subjects_of",
]  # fmt: skip


_Names: TypeAlias = tuple[tuple[int, bytes], ...]


class _Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of the steps: there are many at a time, and the garbage collector need not visit them."""

    def names(self) -> _Names:
        """The names whose rows it changes."""
        return ()

    def locked(self) -> _Names:
        """The names whose rows it changes or relies on."""
        return self.names()

    def read_ahead(self, ahead: "_Ahead") -> None:
        """Collect what it reads."""


class _NameStep(_Step, frozen=True, array_like=True, gc=False):
    namespace: int
    name: bytes

    def names(self) -> _Names:
        return ((self.namespace, self.name),)

    def read_ahead(self, ahead: "_Ahead") -> None:
        ahead.names.append((self.namespace, self.name))


class BeginChange(_NameStep, frozen=True, array_like=True, gc=False):
    """Mark the name of a topic or an alias; the response is its previous row, and the change.

    For `kind` see `PendingChange`.
    """

    kind: str
    to_namespace: int = 0
    to_name: bytes = b""
    keep_alias: bool = False


class MoveWithin(_NameStep, frozen=True, array_like=True, gc=False):
    """Like BeginChange for a move to another name of this shard. A topic that this shard has created is moved at once.

    Then there is no response.
    """

    to_namespace: int
    to_name: bytes
    keep_alias: bool

    def names(self) -> _Names:
        return (self.namespace, self.name), (self.to_namespace, self.to_name)

    def read_ahead(self, ahead: "_Ahead") -> None:
        origin, target = self.names()
        ahead.names += (origin, target)
        ahead.removed.add(origin)


class BindName(_NameStep, frozen=True, array_like=True, gc=False):
    """Bind a marked name to a topic, valid once the topic's own shard decides so."""

    row: NameRow
    pending: PendingChange


class EndChange(_NameStep, frozen=True, array_like=True, gc=False):
    """End the change of a name; its row becomes this, None: it is removed."""

    row: NameRow | None
    pending: PendingChange

    def read_ahead(self, ahead: "_Ahead") -> None:
        place = self.namespace, self.name
        ahead.names.append(place)
        ahead.keys.append(pending_key(*place))
        if self.row is None:
            ahead.removed.add(place)


class TopicStep(_Step, frozen=True, array_like=True, gc=False):
    """A step at the shard that has created the topic."""

    sequence: int

    def read_ahead(self, ahead: "_Ahead") -> None:
        ahead.keys.append(place_key(self.sequence))


class PlaceTopic(TopicStep, frozen=True, array_like=True, gc=False):
    """Rename a topic that this shard has created from `origin`, which may stay as an alias.

    `ends`: this shard has the name `origin` too, and the change of that ends as well.
    """

    origin: Place
    place: Place
    keep_alias: bool = False
    ends: bool = False

    def names(self) -> _Names:
        return (self.origin,) if self.ends else ()

    def locked(self) -> _Names:
        return (self.origin,)

    def read_ahead(self, ahead: "_Ahead") -> None:
        if self.ends:
            ahead.names.append(self.origin)
            ahead.keys.append(pending_key(*self.origin))
            ahead.removed.add(self.origin)
        else:
            ahead.keys.append(place_key(self.sequence))
            ahead.namespaces.add(self.origin.namespace)


class RemoveTopic(TopicStep, frozen=True, array_like=True, gc=False):
    """Delete a topic that this shard has created, and that has the name `origin`. Refused if it has aliases."""

    origin: Place


class AddAlias(TopicStep, frozen=True, array_like=True, gc=False):
    """Add an alias to a topic that this shard has created."""

    namespace: int
    name: bytes


class RemoveAlias(TopicStep, frozen=True, array_like=True, gc=False):
    """Remove an alias."""

    namespace: int
    name: bytes


ChangeStep: TypeAlias = (
    BeginChange | MoveWithin | BindName | EndChange | PlaceTopic | RemoveTopic | AddAlias | RemoveAlias
)


class StepsTogether(NamedTuple):
    """Steps of changes, no two of the same name or topic: the response has that of each, or its refusal."""

    steps: Sequence[ChangeStep]


Decide = Callable[[ChangeStep, StateRows], tuple[Sequence[InventoryEvent], object]]


def subjects_of(steps: Iterable[ChangeStep]) -> set[Hashable]:
    """The names and the topics of steps."""
    found = set[Hashable]()
    for step in steps:
        found.update(step.names())
        if isinstance(step, TopicStep):
            found.add(step.sequence)
    return found


class _Ahead:
    """What steps read: names, of which some may be `removed`, other rows, and whether namespaces were dropped."""

    def __init__(self) -> None:
        self.names = list[tuple[int, bytes]]()
        self.removed = set[tuple[int, bytes]]()
        self.keys = list[bytes]()
        self.namespaces = set[int]()

    def read(self, rows: StateRows) -> RowsReadAhead:
        """The rows with all that read ahead."""
        self.namespaces.update([namespace for namespace, _ in self.names])
        found = RowsReadAhead(rows)
        found.read([*self.keys, *map(dropped_key, self.namespaces)])
        found.read_names(self.names, self.removed)
        return found


def decide_together(
    steps: Sequence[ChangeStep], rows: StateRows, decide: Decide
) -> tuple[list[InventoryEvent], object]:
    """The events of steps, and their responses. The changes of names are one event."""
    ahead = _Ahead()
    for step in steps:
        step.read_ahead(ahead)
    known = ahead.read(rows)
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
            if type(event) is NameChanged:
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
