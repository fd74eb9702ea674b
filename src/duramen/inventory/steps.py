"""Steps of changes of topics: their content, and joint decisions about many of them on rows that are read ahead.

Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from duramen.base.errors import CoordinatorLoading, DuramenError, StorageFailed
from duramen.base.ports import StateRows
from duramen.inventory.events import InventoryEvent, NameChanged, NamesChanged, PendingChange, encode_pending
from duramen.inventory.name_rows import RowsReadAhead, row_instead
from duramen.inventory.rows import (
    NameRow,
    Place,
    dropped_key,
    name_value,
    pending_key,
    place_key,
)

__all__ = [
    "AddAlias", "BeginChange", "BindName", "ChangeStep", "EndChange", "MarkedNames", "MoveWithin", "PlaceTopic",
    "RemoveAlias", "RemoveTopic", "StepSubjects", "StepsTogether", "TopicStep", "decide_together", "subjects_of",
]  # fmt: skip

_MOST_MARKED: Final = 10_000

_Names: TypeAlias = tuple[tuple[int, bytes], ...]


class _Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of the steps: there are many at a time, and the garbage collector need not visit them."""

    def names(self) -> _Names:
        """The names whose rows it changes or relies on."""
        return ()

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

    def read_ahead(self, ahead: "_Ahead") -> None:
        ahead.read_to_mark((self.namespace, self.name))


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

    def read_ahead(self, ahead: "_Ahead") -> None:
        ahead.read_to_mark((self.namespace, self.name))


class EndChange(_NameStep, frozen=True, array_like=True, gc=False):
    """End the change of a name; its row becomes this, None: it is removed."""

    row: NameRow | None
    pending: PendingChange

    def read_ahead(self, ahead: "_Ahead") -> None:
        ahead.read_marked((self.namespace, self.name), removed=self.row is None)


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
        return (self.origin,)

    def read_ahead(self, ahead: "_Ahead") -> None:
        if self.ends:
            ahead.read_marked(self.origin, removed=True)
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


_OF_ONE_NAME: Final = frozenset({BeginChange, BindName, EndChange})


class StepsTogether(NamedTuple):
    """Steps of changes, no two of the same name or topic: the response has that of each, or its refusal."""

    steps: Sequence[ChangeStep]
    subjects: "StepSubjects | None" = None  # of all steps, if they are known


Decide = Callable[[ChangeStep, StateRows], tuple[Sequence[InventoryEvent], object]]


class StepSubjects(NamedTuple):
    """The names and the topics that steps change or rely on."""

    names: set[tuple[int, bytes]]
    topics: set[int]

    def share(self, other: "StepSubjects") -> bool:
        """Whether some steps have one in common with others."""
        return not (self.names.isdisjoint(other.names) and self.topics.isdisjoint(other.topics))

    def add(self, other: "StepSubjects") -> None:
        """Add those of other steps."""
        self.names.update(other.names)
        self.topics.update(other.topics)


def subjects_of(steps: Iterable[ChangeStep]) -> StepSubjects:
    """The subjects of steps."""
    names, topics = set[tuple[int, bytes]](), set[int]()
    for step in steps:
        if type(step) in _OF_ONE_NAME:  # most of them, without a call for each
            names.add((step.namespace, step.name))  # type: ignore[union-attr]
            continue
        names.update(step.names())
        if isinstance(step, TopicStep):
            topics.add(step.sequence)
    return StepSubjects(names, topics)


class _Mark(msgspec.Struct, frozen=True, gc=False):
    """The row of a marked name, its value in a block, and its pending change, encoded."""

    own: bytes | None
    block: bytes | None
    pending: bytes


class MarkedNames:
    """The rows of names that steps have marked, as decided: the steps that end these changes do not read them again.

    A lost entry costs these reads. A decision that is not stored leaves an entry without a pending change in the rows:
    no step ends such a change, and the next decision about the name replaces the entry.
    """

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._marks = dict[tuple[int, bytes], _Mark]()

    def clear(self) -> None:
        """Rows may have changed by other means than steps."""
        self._marks.clear()

    def take(self, place: tuple[int, bytes]) -> _Mark | None:
        """Remove the rows of a name that a step decides about, and return them."""
        return self._marks.pop(place, None)

    def put(self, place: tuple[int, bytes], mark: _Mark) -> None:
        """A step marks a name."""
        if len(self._marks) >= _MOST_MARKED:
            self._marks.clear()
        self._marks[place] = mark

    def end(self, step: EndChange) -> tuple[bytes | None, int] | None:
        """As of `row_instead`, for the name of a change that ends; None if its rows have to be read."""
        mark = self._marks.pop((step.namespace, step.name), None)
        if mark is None or mark.pending != encode_pending(step.pending):
            return None
        return row_instead(mark.own, mark.block, None if step.row is None else name_value(step.row, self._shard))


class _Ahead:
    """What steps read: names, of which some may be `removed`, other rows, and whether namespaces were dropped."""

    def __init__(self, marks: MarkedNames) -> None:
        self._marks = marks
        self._marked = dict[tuple[int, bytes], _Mark]()
        self.names = list[tuple[int, bytes]]()
        self.removed = set[tuple[int, bytes]]()
        self.keys = list[bytes]()
        self.namespaces = set[int]()

    def read_to_mark(self, place: tuple[int, bytes]) -> None:
        """Read a name that may be marked; the end of the change may remove it."""
        self.names.append(place)
        self.removed.add(place)

    def read_marked(self, place: tuple[int, bytes], *, removed: bool) -> None:
        """Read a name with a pending change, unless that is known."""
        mark = self._marks.take(place)
        if mark is not None:
            self._marked[place] = mark
            return
        self.names.append(place)
        self.keys.append(pending_key(*place))
        if removed:
            self.removed.add(place)

    def read(self, rows: StateRows) -> RowsReadAhead:
        """The rows with all that read ahead."""
        self.namespaces.update([namespace for namespace, _ in self.names])
        found = RowsReadAhead(rows)
        found.read([*self.keys, *map(dropped_key, self.namespaces)])
        found.read_names(self.names, self.removed)
        for place, mark in self._marked.items():
            found.know(place, mark.own, mark.block, mark.pending)
        return found


class _ChangedNames:
    """Collects changes of names for one event."""

    def __init__(self, marks: MarkedNames) -> None:
        self._marks = marks
        self._rows = list[tuple[int, bytes, bytes | None, bytes | None]]()
        self._counts = defaultdict[int, int](int)

    def end(self, step: EndChange) -> bool:
        """Add the end of a change, if the rows of its name are known."""
        ended = self._marks.end(step)
        if ended is None:
            return False
        self._add(step.namespace, step.name, ended, None)
        return True

    def add(self, event: NameChanged, rows: RowsReadAhead) -> None:
        place, pending = (event.namespace, event.name), event.pending
        own, block = rows.known_names[place]
        changed = row_instead(own, block, event.value)
        if pending is None:
            self._marks.take(place)
        else:
            self._marks.put(place, _Mark(changed[0], block, pending))
        self._add(*place, changed, pending)

    def _add(self, namespace: int, name: bytes, changed: tuple[bytes | None, int], pending: bytes | None) -> None:
        value, more = changed
        self._rows.append((namespace, name, value, pending))
        if more:
            self._counts[namespace] += more

    def events(self) -> list[NamesChanged]:
        return [NamesChanged(self._rows, [*self._counts.items()])] if self._rows else []


def decide_together(
    steps: Sequence[ChangeStep], rows: StateRows, decide: Decide, marks: MarkedNames
) -> tuple[list[InventoryEvent], object]:
    """The events of steps, and their responses. The changes of names are one event."""
    ahead, changed, left = _Ahead(marks), _ChangedNames(marks), list[tuple[int, ChangeStep]]()
    for at, step in enumerate(steps):
        if type(step) is not EndChange or not changed.end(step):
            step.read_ahead(ahead)
            left.append((at, step))
    known, made, responses = ahead.read(rows), list[InventoryEvent](), list[object]([None] * len(steps))
    for at, step in left:
        try:
            events, responses[at] = decide(step, known)
        except (CoordinatorLoading, StorageFailed):
            raise  # the rows cannot be read: no step is executed
        except DuramenError as error:
            responses[at] = error
            continue
        for event in events:
            if type(event) is NameChanged:
                changed.add(event, known)
            else:
                made.append(event)
    return [*made, *changed.events()], responses
