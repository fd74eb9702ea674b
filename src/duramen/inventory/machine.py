"""Commands on the topics of a shard, and the events that they come to. Pure.

What concerns one shard is one event. A change of several is a chain of commands: it begins at the name that a topic has
(`BeginChange`), which is marked; it comes to pass or not in one event of the shard that made the topic (`PlaceTopic`,
`RemoveTopic`, `AddAlias`, `RemoveAlias`); and it ends at the name (`EndChange`). Whoever reads a marked name asks the
shard of the topic: so at each time one name counts. Each command may be repeated, and a change that was interrupted is
taken up again at any time.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from duramen.base.catalogue_inventory import TOPIC
from duramen.base.errors import (
    NamespaceNotFound,
    TopicBusy,
    TopicExists,
    TopicHasAliases,
    TopicIsAlias,
    TopicNotFound,
)
from duramen.base.ports import StateRows
from duramen.inventory.events import (
    AliasChanged,
    InventoryEvent,
    NameChanged,
    NamespaceDropped,
    NamesRemoved,
    PendingChange,
    TopicPlaced,
    TopicPoliciesPut,
    TopicsCreated,
    encode_pending,
    pack_names,
)
from duramen.inventory.policies import PolicyChange, changed_policies, check_policies, read_policies
from duramen.inventory.rows import (
    ALIAS,
    LEAVING,
    NEXT_KEY,
    NameRow,
    Place,
    alias_end,
    alias_key,
    current_place,
    dropped_key,
    name_end,
    name_key,
    name_row,
    name_value,
    pending_key,
    topic_policies_key,
)

__all__ = [
    "MOST_NAMES",
    "AddAlias",
    "BeginChange",
    "BindName",
    "CreateTopics",
    "Created",
    "DropNamespace",
    "EndChange",
    "PlaceTopic",
    "RemoveAlias",
    "RemoveTopic",
    "SetTopicPolicies",
    "SweepNamespace",
    "TopicCommand",
    "TopicShardState",
    "topic_keys",
]

MOST_NAMES: Final = 5000
"""What one command may make, so that others get their turn."""

_SCANNED_AT_ONCE: Final = 2
_LEAST_SCANNED: Final = 16
_NAMES_OF_AN_EVENT: Final = 1000  # who asks for an id has the names of its event unpacked
_LOCKS: Final = 64  # for the names of a namespace
_SWEPT_AT_ONCE: Final = 2000


class CreateTopics(NamedTuple):
    """New topics in a namespace: names of this shard, sorted. Those that are there stay. The response is `Created`."""

    namespace: int
    names: Sequence[bytes]


class Created(NamedTuple):
    """Which names are new, and the sequence of the first of them; `existing` were there already."""

    new: Sequence[bytes]
    first: int
    existing: Sequence[bytes]


class BeginChange(NamedTuple):
    """Mark the name of a topic or an alias; the response is its row before, and the change. For `kind` see there."""

    namespace: int
    name: bytes
    kind: str
    to_namespace: int = 0
    to_name: bytes = b""
    keep_alias: bool = False


class BindName(NamedTuple):
    """Give a topic a name that is marked, and counts once the topic's own shard says so."""

    namespace: int
    name: bytes
    row: NameRow
    pending: PendingChange


class EndChange(NamedTuple):
    """Nothing is under way with a name any more; its row is this, None: it is gone."""

    namespace: int
    name: bytes
    row: NameRow | None
    pending: PendingChange


class PlaceTopic(NamedTuple):
    """A topic that this shard has made has another name than `origin`, which may stay as an alias."""

    sequence: int
    origin: Place
    place: Place
    keep_alias: bool = False


class RemoveTopic(NamedTuple):
    """A topic that this shard has made, and that has the name `origin`, is gone. Refused where it has aliases."""

    sequence: int
    origin: Place


class AddAlias(NamedTuple):
    """A topic that this shard has made has one more alias."""

    sequence: int
    namespace: int
    name: bytes


class RemoveAlias(NamedTuple):
    """An alias is gone."""

    sequence: int
    namespace: int
    name: bytes


class SetTopicPolicies(NamedTuple):
    """Change policies of a topic that this shard has made. The response is its policies then."""

    sequence: int
    changes: PolicyChange


class DropNamespace(NamedTuple):
    """Make nothing in this namespace any more."""

    namespace: int


class SweepNamespace(NamedTuple):
    """Remove some names of a dropped namespace; the response says whether there may be more."""

    namespace: int


TopicCommand: TypeAlias = (
    CreateTopics | BeginChange | BindName | EndChange | PlaceTopic | RemoveTopic | AddAlias | RemoveAlias
    | DropNamespace | SweepNamespace | SetTopicPolicies
)  # fmt: skip
_Decided: TypeAlias = tuple[Sequence[InventoryEvent], object]


def topic_keys(command: TopicCommand) -> tuple[Hashable, ...]:
    """Commands that share one of these are decided one after the other."""
    if isinstance(command, PlaceTopic | RemoveTopic | AddAlias | RemoveAlias | SetTopicPolicies):
        return ((command.sequence, "id"),)
    # Changes of other names of the namespace do not wait for one another.
    if isinstance(command, BeginChange | BindName | EndChange):
        return ((command.namespace, crc32(command.name) % _LOCKS, "names"),)
    locks: Iterable[int] = range(_LOCKS)
    if isinstance(command, CreateTopics) and len(command.names) < _LOCKS:
        locks = {crc32(name) % _LOCKS for name in command.names}
    return tuple((command.namespace, lock, "names") for lock in locks)


class TopicShardState:
    """What a shard has in memory beside its rows: the sequence that the next topic gets."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._next = 0

    def load(self, rows: StateRows) -> None:
        """Begin where the rows end."""
        self._next = int.from_bytes(rows.get(NEXT_KEY) or b"", "big")

    def decide(self, command: TopicCommand, rows: StateRows) -> _Decided:
        """The events of a command, and its response. Raises what it is refused with."""
        match command:
            case CreateTopics():
                return self._create(command, rows)
            case BeginChange():
                return self._begin(command, rows)
            case BindName():
                return self._bind(command, rows)
            case EndChange():
                return self._end(command, rows)
            case PlaceTopic():
                return self._place(command, rows)
            case RemoveTopic():
                return self._remove(command, rows)
            case AddAlias() | RemoveAlias():
                return self._alias(command, rows)
            case SetTopicPolicies(sequence, policies):
                return self._set_policies(sequence, policies, rows)
            case DropNamespace(namespace):
                there = rows.get(dropped_key(namespace)) is not None
                return ([] if there else [NamespaceDropped(namespace)]), None
            case SweepNamespace(namespace):
                return self._sweep(namespace, rows)

    # -- names --------------------------------------------------------------------------------------

    def _check_namespace(self, namespace: int, rows: StateRows) -> None:
        if rows.get(dropped_key(namespace)) is not None:
            raise NamespaceNotFound("the namespace was deleted")

    def _create(self, command: CreateTopics, rows: StateRows) -> _Decided:
        self._check_namespace(command.namespace, rows)
        existing = _existing(command.namespace, command.names, rows)
        new = [name for name in command.names if name not in existing] if existing else command.names
        first = self._next
        self._next += len(new)
        made = list[TopicsCreated]()
        for at in range(0, len(new), _NAMES_OF_AN_EVENT):
            some = new[at : at + _NAMES_OF_AN_EVENT]
            made.append(TopicsCreated(command.namespace, first + at, len(some), pack_names(some)))
        return made, Created(new, first, sorted(existing))

    def _row(self, namespace: int, name: bytes, rows: StateRows) -> NameRow:
        value = rows.get(name_key(namespace, name))
        if value is None:
            raise TopicNotFound(f"there is no topic {name.decode()} in the namespace")
        return name_row(value, self._shard)

    def _changed(
        self, namespace: int, name: bytes, row: NameRow | None, pending: PendingChange | None
    ) -> InventoryEvent:
        value = None if row is None else name_value(row, self._shard)
        return NameChanged(namespace, name, value, None if pending is None else encode_pending(pending))

    def _begin(self, command: BeginChange, rows: StateRows) -> _Decided:
        self._check_namespace(command.namespace, rows)
        row = self._row(command.namespace, command.name, rows)
        if row.flags & LEAVING:
            raise TopicBusy(f"a change of {command.name.decode()} is under way")
        kind = command.kind
        if row.flags & ALIAS:
            if kind != "delete":
                raise TopicIsAlias(f"{command.name.decode()} is an alias: change the topic that it leads to")
            kind = "unalias"
        if kind == "move" and (command.to_namespace, command.to_name) == (command.namespace, command.name):
            raise TopicExists(f"the topic is called {command.name.decode()} already")
        pending = PendingChange(kind, *row.key, command.to_namespace, command.to_name, command.keep_alias)
        marked = row._replace(flags=row.flags | LEAVING)
        return [self._changed(command.namespace, command.name, marked, pending)], (row, pending)

    def _bind(self, command: BindName, rows: StateRows) -> _Decided:
        namespace, name, row, pending = command
        self._check_namespace(namespace, rows)
        value = rows.get(name_key(namespace, name))
        if value is not None:
            there = name_row(value, self._shard)
            if rows.get(pending_key(namespace, name)) == encode_pending(pending) or there == row:
                return (), None
            if there.flags & LEAVING:
                raise TopicBusy(f"a change of {name.decode()} is under way")
            raise TopicExists(f"there is a topic {name.decode()} already, or an alias of that name")
        marked = row._replace(flags=row.flags | LEAVING)
        return [self._changed(namespace, name, marked, pending)], None

    def _end(self, command: EndChange, rows: StateRows) -> _Decided:
        namespace, name, row, pending = command
        if rows.get(pending_key(namespace, name)) != encode_pending(pending):
            return (), None
        if rows.get(name_key(namespace, name)) is None:
            row = None  # the namespace was dropped, and this name swept
        return [self._changed(namespace, name, row, None)], None

    # -- topics -------------------------------------------------------------------------------------

    def _place(self, command: PlaceTopic, rows: StateRows) -> _Decided:
        now = current_place(rows, command.sequence)
        if now == command.place:
            return (), None
        self._check_origin(now, command.origin)
        place, origin = command.place, command.origin
        kept, kept_name = (origin.namespace, origin.name) if command.keep_alias else (0, None)
        moved = TopicPlaced(
            command.sequence, place.namespace, place.name, kept, kept_name, origin.namespace, origin.name
        )  # fmt: skip
        return [moved], None

    def _remove(self, command: RemoveTopic, rows: StateRows) -> _Decided:
        now = current_place(rows, command.sequence)
        if not now.namespace:
            return (), None
        self._check_origin(now, command.origin)
        first, end = alias_key(command.sequence), alias_end(command.sequence)
        if next(rows.scan(first, end), None) is not None:
            raise TopicHasAliases("the topic has aliases: delete these first")
        return [TopicPlaced(command.sequence, 0, None, 0, None, *command.origin)], None

    def _check_origin(self, now: Place, origin: Place) -> None:
        if not now.namespace:
            raise TopicNotFound("the topic was deleted")
        if now != origin:
            raise TopicBusy(f"the topic is not called {origin.name.decode()} now: another change of it is under way")

    def _alias(self, command: AddAlias | RemoveAlias, rows: StateRows) -> _Decided:
        wanted = isinstance(command, AddAlias)
        if wanted and not current_place(rows, command.sequence).namespace:
            raise TopicNotFound("the topic was deleted")
        sequence, namespace, name = command
        there = rows.get(alias_key(sequence, namespace, name)) is not None
        return ([] if there == wanted else [AliasChanged(sequence, namespace, name, wanted)]), None

    def _set_policies(self, sequence: int, policies: PolicyChange, rows: StateRows) -> _Decided:
        place = current_place(rows, sequence)
        if not place.namespace:
            raise TopicNotFound("the topic was deleted")
        own = read_policies(rows.get(topic_policies_key(sequence)))
        new = changed_policies(own, check_policies(TOPIC, policies))
        return ([] if new == own else [TopicPoliciesPut(sequence, new, *place)]), new

    # -- namespaces that are gone -------------------------------------------------------------------

    def _sweep(self, namespace: int, rows: StateRows) -> _Decided:
        last, count = b"", 0
        for key, _ in rows.scan(name_key(namespace, b""), name_end(namespace)):
            last, count = key[5:], count + 1
            if count == _SWEPT_AT_ONCE:
                break
        return ([NamesRemoved(namespace, last)] if count else []), count == _SWEPT_AT_ONCE


def _existing(namespace: int, names: Sequence[bytes], rows: StateRows) -> set[bytes]:
    """Which of these sorted names are there: by a scan of what is between them, or by gets where that is much."""
    if len(names) >= _LEAST_SCANNED:
        there, skipped = set[bytes](), len(name_key(namespace, b""))
        for key, _ in rows.scan(name_key(namespace, names[0]), name_key(namespace, names[-1]) + b"\x00"):
            there.add(key[skipped:])
            if len(there) > _SCANNED_AT_ONCE * len(names):
                break
        else:
            return there.intersection(names) if there else there
    values = rows.get_many([*map(name_key(namespace, b"").__add__, names)])
    return {name for name, value in zip(names, values, strict=True) if value is not None}
