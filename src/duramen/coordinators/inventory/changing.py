"""Changes of several shards, step by step: topics moved, deleted and aliased; and what an interruption left of them."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
    OutcomeUnknown,
    StorageFailed,
    TopicBusy,
)
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.events import PendingChange, decode_pending
from duramen.inventory.ids import TopicKey
from duramen.inventory.machine import (
    AddAlias,
    BeginChange,
    BindName,
    EndChange,
    PlaceTopic,
    RemoveAlias,
    RemoveTopic,
    TopicCommand,
)
from duramen.inventory.name_rows import value_of_name
from duramen.inventory.rows import ALIAS, ARRIVED, LEAVING, NameRow, Place, name_row, split_name

__all__ = ["Changes"]

_UNKNOWN: Final = (CoordinatorLoading, NotCoordinator, NotEnoughReplicasAfterAppend, StorageFailed)
"""Whether a step was done is not known: the change is taken up again later."""
_AT_ONCE: Final = 100

Ended = Callable[[DuramenError | None], None]


class Changes:
    """Changes under way on this node, by the names that they begin at."""

    def __init__(self, shards: InventoryShards) -> None:
        self._shards = shards
        self._active: set[Place] = set()

    def begin(self, command: BeginChange, done: Ended) -> None:
        """Move or delete what has a name; `done` once it has come to pass everywhere, or not at all."""
        place = Place(command.namespace, command.name)
        self._begin(place, command, lambda answer: answer, done)

    def alias(self, place: Place, key: TopicKey, done: Ended) -> None:
        """Let a name lead to a topic."""
        row, pending = NameRow(ALIAS, key), PendingChange("alias", *key)
        self._begin(place, BindName(*place, row, pending), lambda _: (row, pending), done)

    def _begin(
        self, place: Place, command: TopicCommand, found: Callable[[Any], tuple[NameRow, PendingChange]], done: Ended
    ) -> None:
        if place in self._active:
            done(TopicBusy(f"a change of {place.name.decode()} is under way"))
            return
        self._active.add(place)
        ended = partial(self._ended, place, done)

        def marked(answer: object) -> None:
            if isinstance(answer, DuramenError):
                ended(answer)
                return
            row, pending = found(answer)
            _Change(self._shards, place, row, pending, ended).run()

        self._shards.submit(self._shards.shard_of(*place), command, marked)

    def _ended(self, place: Place, done: Ended, error: DuramenError | None) -> None:
        self._active.discard(place)
        done(error)

    def resume(self) -> None:
        """Take up what was interrupted, some of it. Raises CoordinatorLoading, NotCoordinator."""
        left = _AT_ONCE
        for shard, rows in enumerate(self._shards.each_rows()):
            for key, value in rows.scan(b"p", b"q"):
                place, pending = Place(*split_name(key)), decode_pending(value)
                if place in self._active or pending.kind == "arrive":
                    continue
                found = value_of_name(rows, *place)
                row = NameRow(0, pending.key) if found is None else name_row(found, shard)
                self._active.add(place)
                ended = partial(self._ended, place, lambda _: None)
                _Change(self._shards, place, row._replace(flags=row.flags & ~LEAVING), pending, ended).resume()
                left -= 1
                if not left:
                    return


class _Change:
    """One change whose name is marked; `row` is that of the name before."""

    def __init__(
        self, shards: InventoryShards, origin: Place, row: NameRow, pending: PendingChange, done: Ended
    ) -> None:
        self._shards = shards
        self._origin = origin
        self._row = row
        self._pending = pending
        self._done = done
        self._target = Place(pending.namespace, pending.name)
        self._arriving = PendingChange("arrive", *pending.key, *origin)

    def run(self) -> None:
        """Take the steps behind the first one."""
        home, sequence = self._pending.key
        match self._pending.kind:
            case "move":
                bind = BindName(*self._target, NameRow(ARRIVED, self._pending.key), self._arriving)
                self._submit(self._shards.shard_of(*self._target), bind, self._place, self._back)
            case "delete":
                remove = RemoveTopic(sequence, self._origin)
                self._submit(home, remove, partial(self._end, None), self._back)
            case "alias":
                self._submit(home, AddAlias(sequence, *self._origin), partial(self._end, self._row), self._back)
            case _:
                self._submit(home, RemoveAlias(sequence, *self._origin), partial(self._end, None), self._back)

    def resume(self) -> None:
        """Take the steps that are left."""
        try:
            passed = self._passed()
        except DuramenError as error:
            self._done(error)
            return
        if not passed:
            self.run()
        elif self._pending.kind == "move":
            self._arrive()
        else:
            self._end(None)

    def _passed(self) -> bool:
        """Whether it has come to pass: then the topic is not where it was."""
        moves = self._pending.kind in ("move", "delete")
        return moves and self._shards.rows().place(self._pending.key) != self._origin

    def _place(self) -> None:
        home, sequence = self._pending.key
        command = PlaceTopic(sequence, self._origin, self._target, self._pending.keep_alias)
        self._submit(home, command, self._arrive, self._unbind)

    def _arrive(self) -> None:
        row, kept = NameRow(ARRIVED, self._pending.key), None
        if self._pending.keep_alias:
            kept = NameRow(ALIAS, self._pending.key)
        self._end_at(self._target, row, self._arriving, partial(self._end, kept))

    def _unbind(self, error: DuramenError) -> None:
        self._end_at(self._target, None, self._arriving, partial(self._back, error))

    def _end(self, row: NameRow | None) -> None:
        self._end_at(self._origin, row, self._pending, partial(self._done, None))

    def _back(self, error: DuramenError) -> None:
        """It is refused: the name is what it was before."""
        row = None if self._pending.kind == "alias" else self._row
        self._end_at(self._origin, row, self._pending, partial(self._done, error))

    def _end_at(self, place: Place, row: NameRow | None, pending: PendingChange, then: Callable[[], None]) -> None:
        self._submit(self._shards.shard_of(*place), EndChange(*place, row, pending), then, self._done)

    def _submit(
        self, shard: int, command: TopicCommand, then: Callable[[], None], refused: Callable[[DuramenError], None]
    ) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, _UNKNOWN):
                self._done(OutcomeUnknown(f"the change is under way, and goes on when that is possible: {answer}"))
            elif isinstance(answer, DuramenError):
                refused(answer)
            else:
                then()

        self._shards.submit(shard, command, answered)
