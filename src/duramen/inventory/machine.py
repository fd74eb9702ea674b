"""Commands on the topics of a shard, and the events that they produce. Pure.

A change within one shard is one event. A change over several shards is a chain of commands. It starts at the topic's
present name (`BeginChange`), which is marked. One event of the shard that created the topic decides it (`PlaceTopic`,
`RemoveTopic`, `AddAlias`, `RemoveAlias`). It ends at the name (`EndChange`). A reader of a marked name asks the topic's
shard, so that exactly one name is valid at any time. Each command may be repeated, and an interrupted change can be
resumed at any time.

On a cluster the leader of the directory executes these steps with a token (`Fenced`). Before it resumes a change that
another node has left, or one without a response, it makes all shards refuse steps with lower tokens (`Fence`), so that
no step in transit takes effect later.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from duramen.base.catalogue.inventory import TOPIC
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NamespaceNotFound,
    TopicBusy,
    TopicExists,
    TopicHasAliases,
    TopicIsAlias,
    TopicNotFound,
)
from duramen.base.ports import StateRows
from duramen.codec.exports import FIRST_SEQUENCES, SYNC
from duramen.inventory.events import (
    AliasChanged,
    ChangesFenced,
    InventoryEvent,
    NameChanged,
    NamespaceDropped,
    NamesRemoved,
    PendingChange,
    TopicPlaced,
    TopicPoliciesPut,
    TopicsCreated,
    encode_pending,
)
from duramen.inventory.ids import TopicKey
from duramen.inventory.name_rows import (
    is_topic,
    name_blocks,
    own_name_rows,
    value_of_name,
    values_by_name,
    values_of_names,
)
from duramen.inventory.packing import NAMES_OF_A_BLOCK, NameBlock, pack_names, unpack_names
from duramen.inventory.policies import PolicyChange, changed_policies, check_policies, read_policies
from duramen.inventory.rows import (
    ALIAS,
    ARRIVED,
    BEHIND_NAMES,
    FENCE_KEY,
    LEAVING,
    NameRow,
    Place,
    alias_end,
    alias_key,
    current_place,
    dropped_key,
    name_row,
    name_value,
    next_sequence,
    pending_key,
    topic_policies_key,
)
from duramen.inventory.steps import (
    AddAlias,
    BeginChange,
    BindName,
    ChangeStep,
    EndChange,
    MarkedNames,
    MoveWithin,
    PlaceTopic,
    RemoveAlias,
    RemoveTopic,
    StepsTogether,
    StepSubjects,
    decide_together,
    subjects_of,
)

__all__ = [
    "MOST_NAMES",
    "AddAlias",
    "BeginChange",
    "BindName",
    "ChangeStep",
    "CreateTopics",
    "Created",
    "DropNamespace",
    "EndChange",
    "Fence",
    "Fenced",
    "MoveWithin",
    "PlaceTopic",
    "RemoveAlias",
    "RemoveTopic",
    "SetTopicPolicies",
    "StepsTogether",
    "SweepNamespace",
    "TopicCommand",
    "TopicShardState",
    "topic_keys",
]

MOST_NAMES: Final = 5000
"""The largest number of topics per command, so that other commands are not delayed."""

_SCANNED_AT_ONCE: Final = 2
_LEAST_SCANNED: Final = 16
_LEAST_OF_A_BLOCK: Final = 16  # fewer get individual rows, which are found faster
_LOCKS: Final = 64  # for the names of a namespace
_SWEPT_AT_ONCE: Final = 2000


class CreateTopics(NamedTuple):
    """Create topics in a namespace: names of this shard, in order. Existing ones stay. The response is `Created`."""

    namespace: int
    blocks: Sequence[NameBlock]
    durability: str = SYNC

    @property
    def total(self) -> int:
        """The number of names."""
        return sum(block.size for block in self.blocks)


class Created(NamedTuple):
    """The number of new names, and the sequence of the first; `existing` ones stay, among them `aliases`."""

    new: int
    first: int
    existing: int
    aliases: Sequence[bytes] = ()


class SetTopicPolicies(NamedTuple):
    """Change policies of a topic that this shard has created. The response is the new policies."""

    sequence: int
    changes: PolicyChange


class DropNamespace(NamedTuple):
    """Create nothing in this namespace any more."""

    namespace: int


class SweepNamespace(NamedTuple):
    """Remove some names of a dropped namespace; the response tells whether there may be more."""

    namespace: int


_OneCommand: TypeAlias = CreateTopics | ChangeStep | DropNamespace | SweepNamespace | SetTopicPolicies


class Fence(NamedTuple):
    """Refuse steps of changes with lower tokens from here on. Refused if a higher one is known."""

    token: int


class Fenced(NamedTuple):
    """A step of a change, with the token of the submitting node."""

    token: int
    step: ChangeStep


TopicCommand: TypeAlias = _OneCommand | StepsTogether | Fence | Fenced
_Decided: TypeAlias = tuple[Sequence[InventoryEvent], object]


def topic_keys(command: TopicCommand) -> Collection[Hashable]:
    """Commands that share one of these are decided one after the other."""
    if isinstance(command, StepsTogether):
        return _keys_of_steps(command.subjects or subjects_of(command.steps))
    if isinstance(command, Fenced):
        return topic_keys(command.step)
    if isinstance(command, Fence):
        return ("fence",)
    if isinstance(command, SetTopicPolicies):
        return (_lock_of_topic(command.sequence),)
    if isinstance(command, CreateTopics | DropNamespace | SweepNamespace):
        return _keys_of_many(command)
    return _keys_of_steps(subjects_of((command,)))


def _keys_of_many(command: CreateTopics | DropNamespace | SweepNamespace) -> tuple[Hashable, ...]:
    locks: Iterable[int] = range(_LOCKS)
    if isinstance(command, CreateTopics) and command.total < _LOCKS:
        locks = {crc32(name) % _LOCKS for block in command.blocks for name in unpack_names(block.body)}
    found: list[Hashable] = [command.namespace * _LOCKS + lock for lock in locks]
    if not isinstance(command, CreateTopics) or command.total >= _LEAST_OF_A_BLOCK:
        # Blocks must not overlap: each of two concurrent commands would consider its names alone.
        found.append((command.namespace, "blocks"))
    return tuple(found)


def _keys_of_steps(subjects: StepSubjects) -> set[Hashable]:
    # Changes of other names of the namespace can run concurrently.
    locks: set[Hashable] = {namespace * _LOCKS + crc32(name) % _LOCKS for namespace, name in subjects.names}
    locks.update(map(_lock_of_topic, subjects.topics))
    return locks


def _lock_of_topic(sequence: int) -> int:
    return -1 - sequence % _LOCKS


class TopicShardState:
    """The memory of a shard besides its rows: the next topic's sequence, the token of changes, and marked names."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._next = dict(FIRST_SEQUENCES)
        self._token = 0
        self._marks = MarkedNames(shard)

    def load(self, rows: StateRows) -> None:
        """Load it from rows."""
        self._next = {durability: next_sequence(rows, durability) for durability in FIRST_SEQUENCES}
        self._token = int.from_bytes(rows.get(FENCE_KEY) or b"", "big")
        self._marks.clear()

    def decide(self, command: TopicCommand, rows: StateRows) -> _Decided:
        """The events of a command, and its response. Raises the error of a refusal."""
        if isinstance(command, StepsTogether):
            return decide_together(command.steps, rows, self._decide_step, self._marks)
        if not isinstance(command, CreateTopics):
            self._marks.clear()  # it may change the rows of marked names
        if isinstance(command, Fence | Fenced):
            if command.token < self._token:
                raise CoordinatorLoading("another node has resumed the change that this node started")
            if isinstance(command, Fenced):
                return self._decide(command.step, rows)
            self._token = command.token
            return [ChangesFenced(command.token)], None
        return self._decide(command, rows)

    def _decide(self, command: _OneCommand, rows: StateRows) -> _Decided:
        match command:
            case CreateTopics():
                return self._create(command, rows)
            case SetTopicPolicies(sequence, policies):
                return self._set_policies(sequence, policies, rows)
            case DropNamespace(namespace):
                there = rows.get(dropped_key(namespace)) is not None
                return ([] if there else [NamespaceDropped(namespace)]), None
            case SweepNamespace(namespace):
                return self._sweep(namespace, rows)
            case _:
                return self._decide_step(command, rows)

    def _decide_step(self, step: ChangeStep, rows: StateRows) -> _Decided:
        decided: _Decided = _DECIDERS[type(step)](self, step, rows)
        return decided

    # -- names --------------------------------------------------------------------------------------

    def _check_namespace(self, namespace: int, rows: StateRows) -> None:
        if rows.get(dropped_key(namespace)) is not None:
            raise NamespaceNotFound("the namespace was deleted")

    def _create(self, command: CreateTopics, rows: StateRows) -> _Decided:
        self._check_namespace(command.namespace, rows)
        namespace, blocks, durability = command
        first, made, existing, aliases = self._next[durability], list[TopicsCreated](), 0, list[bytes]()
        alone = _is_free(namespace, blocks[0].first, blocks[-1].last, rows) if blocks else True
        for block in blocks:
            if alone or _is_free(namespace, block.first, block.last, rows):
                self._make(made, command, block.size, block.body, alone=block.size >= _LEAST_OF_A_BLOCK)
                continue
            names = unpack_names(block.body)
            there = _existing(namespace, names, rows)
            existing += len(there)
            aliases += sorted(name for name, value in there.items() if not is_topic(value))
            new = [name for name in names if name not in there] if there else names
            if new:
                self._make(made, command, len(new), pack_names(new), alone=False)
        return made, Created(self._next[durability] - first, first, existing, aliases)

    def _make(self, made: list[TopicsCreated], command: CreateTopics, count: int, body: bytes, *, alone: bool) -> None:
        made.append(TopicsCreated(command.namespace, self._next[command.durability], count, body, alone))
        self._next[command.durability] += count

    def _row(self, namespace: int, name: bytes, rows: StateRows) -> NameRow:
        value = value_of_name(rows, namespace, name)
        if value is None:
            raise TopicNotFound(f"there is no topic {name.decode()} in the namespace")
        return name_row(value, self._shard)

    def _changed(
        self, namespace: int, name: bytes, row: NameRow | None, pending: PendingChange | None
    ) -> InventoryEvent:
        value = None if row is None else name_value(row, self._shard)
        return NameChanged(namespace, name, value, None if pending is None else encode_pending(pending))

    def _begin(self, command: BeginChange, rows: StateRows) -> _Decided:
        return self._marked(command, self._leaving(command, rows))

    def _leaving(self, command: BeginChange | MoveWithin, rows: StateRows) -> NameRow:
        """The row of a name that can be changed."""
        self._check_namespace(command.namespace, rows)
        row = self._row(command.namespace, command.name, rows)
        if row.flags & LEAVING:
            raise TopicBusy(f"a change of {command.name.decode()} is in progress")
        return row

    def _marked(self, command: BeginChange, row: NameRow) -> _Decided:
        kind = command.kind
        if row.flags & ALIAS:
            if kind != "delete":
                raise TopicIsAlias(f"{command.name.decode()} is an alias")
            kind = "unalias"
        if kind == "move":
            _check_target(command)
        pending = PendingChange(kind, *row.key, command.to_namespace, command.to_name, command.keep_alias)
        marked = NameRow(row.flags | LEAVING, row.key)
        return [self._changed(command.namespace, command.name, marked, pending)], (row, pending)

    def _move_within(self, command: MoveWithin, rows: StateRows) -> _Decided:
        row = self._leaving(command, rows)
        if row.flags & ALIAS or row.key.shard != self._shard:
            begin = BeginChange(
                command.namespace, command.name, "move", command.to_namespace, command.to_name, command.keep_alias
            )
            return self._marked(begin, row)  # the shard that created it must be asked
        _check_target(command)
        origin, target = Place(command.namespace, command.name), Place(command.to_namespace, command.to_name)
        self._check_namespace(target.namespace, rows)
        there = value_of_name(rows, *target)
        if there is not None:
            raise _taken(target.name, name_row(there, self._shard))
        place = PlaceTopic(row.key.sequence, origin, target, command.keep_alias)
        made, _ = self._place(place, rows, row)
        kept = NameRow(ALIAS, row.key) if command.keep_alias else None
        names = self._changed(*origin, kept, None), self._changed(*target, NameRow(ARRIVED, row.key), None)
        return [*made, *names], None

    def _bind(self, command: BindName, rows: StateRows) -> _Decided:
        namespace, name, row, pending = command.namespace, command.name, command.row, command.pending
        self._check_namespace(namespace, rows)
        value = value_of_name(rows, namespace, name)
        if value is not None:
            there = name_row(value, self._shard)
            if rows.get(pending_key(namespace, name)) == encode_pending(pending) or there == row:
                return (), None
            raise _taken(name, there)
        marked = NameRow(row.flags | LEAVING, row.key)
        return [self._changed(namespace, name, marked, pending)], None

    def _end(self, command: EndChange, rows: StateRows) -> _Decided:
        namespace, name, row, pending = command.namespace, command.name, command.row, command.pending
        if rows.get(pending_key(namespace, name)) != encode_pending(pending):
            return (), None
        if value_of_name(rows, namespace, name) is None:
            row = None  # the namespace was dropped, and this name removed
        return [self._changed(namespace, name, row, None)], None

    # -- topics -------------------------------------------------------------------------------------

    def _place_and_end(self, command: PlaceTopic, rows: StateRows) -> _Decided:
        sequence, origin, place, keep_alias = command.sequence, command.origin, command.place, command.keep_alias
        if not command.ends:
            return self._place(command, rows)
        value = value_of_name(rows, *origin)
        made, _ = self._place(command, rows, None if value is None else name_row(value, self._shard))
        key = TopicKey(self._shard, sequence)
        pending = PendingChange("move", *key, *place, keep_alias)
        ended, _ = self._end(EndChange(*origin, NameRow(ALIAS, key) if keep_alias else None, pending), rows)
        return [*made, *ended], None

    def _place(self, command: PlaceTopic, rows: StateRows, row: NameRow | None = None) -> _Decided:
        """`row` is that of `origin`, if this shard has that name."""
        sequence, origin, place, keep_alias = command.sequence, command.origin, command.place, command.keep_alias
        if row is not None and row.key == (self._shard, sequence) and not row.flags & (ALIAS | ARRIVED):
            now = origin  # it still has its original name
        else:
            now = current_place(rows, sequence)
        if now == place:
            return (), None
        # Topics of a dropped namespace stay there: their records may be deleted already.
        self._check_namespace(origin.namespace, rows)
        self._check_origin(now, origin)
        kept, kept_name = origin if keep_alias else (0, None)
        return [TopicPlaced(sequence, place.namespace, place.name, kept, kept_name, *origin)], None

    def _remove(self, command: RemoveTopic, rows: StateRows) -> _Decided:
        now = current_place(rows, command.sequence)
        if not now.namespace:
            return (), None
        self._check_origin(now, command.origin)
        first, end = alias_key(command.sequence), alias_end(command.sequence)
        if next(rows.scan(first, end), None) is not None:
            raise TopicHasAliases("the topic has aliases")
        return [TopicPlaced(command.sequence, 0, None, 0, None, *command.origin)], None

    def _check_origin(self, now: Place, origin: Place) -> None:
        if not now.namespace:
            raise TopicNotFound("the topic was deleted")
        if now != origin:
            raise TopicBusy(f"the topic is not called {origin.name.decode()} now: another change of it is in progress")

    def _alias(self, command: AddAlias | RemoveAlias, rows: StateRows) -> _Decided:
        wanted = isinstance(command, AddAlias)
        if wanted and not current_place(rows, command.sequence).namespace:
            raise TopicNotFound("the topic was deleted")
        sequence, namespace, name = command.sequence, command.namespace, command.name
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
        for name, _ in values_by_name(rows, namespace, b""):
            last, count = name, count + 1
            if count == _SWEPT_AT_ONCE:
                return [NamesRemoved(namespace, last)], True
        some = (*own_name_rows(rows, namespace, b""), *name_blocks(rows, namespace, b""))
        return ([NamesRemoved(namespace, BEHIND_NAMES)] if some else []), False


_DECIDERS: Final[Mapping[type[ChangeStep], Callable[..., _Decided]]] = {
    BeginChange: TopicShardState._begin,
    MoveWithin: TopicShardState._move_within,
    BindName: TopicShardState._bind,
    EndChange: TopicShardState._end,
    PlaceTopic: TopicShardState._place_and_end,
    RemoveTopic: TopicShardState._remove,
    AddAlias: TopicShardState._alias,
    RemoveAlias: TopicShardState._alias,
}


def _check_target(command: BeginChange | MoveWithin) -> None:
    if (command.to_namespace, command.to_name) == (command.namespace, command.name):
        raise TopicExists(f"the topic is called {command.name.decode()} already")


def _taken(name: bytes, row: NameRow) -> DuramenError:
    if row.flags & LEAVING:
        return TopicBusy(f"a change of {name.decode()} is in progress")
    if row.flags & ALIAS:
        return TopicExists(f"{name.decode()} is an alias already: `duramen topic delete` frees the name")
    return TopicExists(f"there is a topic {name.decode()} already")


def _is_free(namespace: int, first: bytes, last: bytes, rows: StateRows) -> bool:
    """Whether no name in this range has a row or is in a block."""
    if next(own_name_rows(rows, namespace, first, last + b"\x00"), None) is not None:
        return False
    block = next(name_blocks(rows, namespace, first), None)
    return block is None or unpack_names(block[1].body)[0] > last


def _existing(namespace: int, names: Sequence[bytes], rows: StateRows) -> dict[bytes, bytes]:
    """The rows of the existing ones of these ordered names: found by a scan, or by gets if the range is large."""
    if len(names) >= _LEAST_SCANNED:
        there = dict[bytes, bytes]()
        for name, value in values_by_name(rows, namespace, names[0], names[-1] + b"\x00"):
            there[name] = value
            if len(there) > _SCANNED_AT_ONCE * max(len(names), NAMES_OF_A_BLOCK):
                break
        else:
            return {name: there[name] for name in there.keys() & names} if there else there
    values = values_of_names(rows, [(namespace, name) for name in names])
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}
