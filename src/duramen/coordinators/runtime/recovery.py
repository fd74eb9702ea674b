"""Recovery of the rows of a node, in blocking jobs: from what can be read of them and of their checkpoints.

Nothing that is damaged is deleted: it is set aside.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from duramen.base.errors import DuramenError, StateDamaged
from duramen.base.ports import StateRows, StateStore
from duramen.coordinators.runtime.layout import (
    ALL_ROWS,
    EMPTY,
    HELD,
    LogRows,
    StoredState,
    all_stored,
    loss_rows,
    losses_of,
    position_rows,
    readable_stored_of,
    restorable,
    row_prefix,
)

__all__ = ["FoundRows", "open_rows", "recover"]


class FoundRows(NamedTuple):
    """The rows that are used from now on: the positions of all states in them and in each checkpoint, oldest first.

    `damage` has the reason for each log of which no rows could be read, now or at an earlier recovery; `reports` are
    empty if nothing was damaged.
    """

    store: StateStore
    checkpoints: Sequence[tuple[str, Mapping[int, StoredState]]]
    stored: dict[int, StoredState]
    damage: Mapping[int, str]
    reports: Sequence[str]


def open_rows(open_store: Callable[[], StateStore], logs: Collection[int]) -> FoundRows:
    """Open the store, and recover its rows if they are damaged, or absent although there are checkpoints of them.

    Raises StorageFailed if they cannot be read now.
    """
    store = open_store()
    try:
        return _opened(store, logs)
    except BaseException:
        with suppress(DuramenError):
            store.close()
        raise


def _opened(store: StateStore, logs: Collection[int]) -> FoundRows:
    for name in store.checkpoints():
        if name.startswith(HELD):
            store.remove_checkpoint(name)
    cause = store.problem
    if not cause:
        try:
            stored, (checkpoints, damaged) = all_stored(store), _checkpoints_of(store)
        except StateDamaged as error:
            cause = str(error)
        else:
            # A damaged checkpoint may still have what the rows lack: all rows are read before it is set aside.
            cause = next(iter(damaged.values()), "")
            if not cause and (stored or not checkpoints):
                return FoundRows(store, checkpoints, stored, losses_of(store), [])
    found = recover(store, logs)
    return found._replace(reports=[cause or "there are checkpoints of coordinators' rows, and no rows", *found.reports])


def recover(store: StateStore, logs: Collection[int], *, rewrite: bool = False) -> FoundRows:
    """Use the rows if all of them can be read, else those of the newest checkpoint of which all can be read.

    If there is none, or with `rewrite`, new files are written: the rows of each log come from the newest place where
    all of them can be read. Raises StorageFailed if something cannot be read or written now.
    """
    store.reopen()
    names = restorable(store)
    if rewrite:
        return _rebuild(store, logs, names)
    if not (store.problem or _damage_in(store)) and (all_stored(store) or not names):
        return _found(store, ["all rows of coordinators can be read again"])
    whole = next((name for name in reversed(names) if not _damage_of(store, name)), None)
    if whole is None:
        return _rebuild(store, logs, names)
    where = store.restore(whole)
    reports = [f"rows of coordinators were restored from checkpoint {whole}; the damaged ones are in {where}"]
    return _found(store, [*reports, *_set_aside(store, names[names.index(whole) + 1 :])])


def _rebuild(store: StateStore, logs: Collection[int], names: Sequence[str]) -> FoundRows:
    chosen, damage = dict[int, tuple[StateRows, StoredState]](), dict[int, str]()
    with ExitStack() as opened:
        sources: list[StateRows] = [store]
        for name in reversed(names):
            try:
                rows = store.open_checkpoint(name)
            except StateDamaged:
                continue
            opened.callback(rows.close)
            sources.append(rows)
        for log_id in logs:
            _choose(log_id, sources, chosen, damage)
        losses = _losses(sources)
        where = store.replace(_rows_of(chosen))
    losses |= {log_id: f"{why}; they are in {where} now" for log_id, why in damage.items() if log_id not in losses}
    store.write(loss_rows({log_id: why for log_id, why in losses.items() if log_id not in chosen}), ())
    store.flush()
    told = f"rows of coordinators were restored for each of {len(chosen)} logs; the damaged ones are in {where}"
    return _found(store, [told, *_set_aside(store, names)])


def _choose(
    log_id: int, sources: Sequence[StateRows], chosen: dict[int, tuple[StateRows, StoredState]],
    damage: dict[int, str],
) -> None:  # fmt: skip
    """Choose the newest source with all rows of a log, or note why there is none."""
    for rows in sources:
        try:
            stored = readable_stored_of(rows, log_id)
            _read(LogRows(rows, log_id, stored.generation).all())
        except StateDamaged as error:
            damage.setdefault(log_id, str(error))
        else:
            if stored != EMPTY:
                chosen[log_id] = rows, stored
                return


def _losses(sources: Sequence[StateRows]) -> dict[int, str]:
    """Why rows were lost before."""
    found = dict[int, str]()
    for rows in sources:
        with suppress(StateDamaged):
            found = losses_of(rows) | found
    return found


def _rows_of(chosen: Mapping[int, tuple[StateRows, StoredState]]) -> Iterator[tuple[bytes, bytes]]:
    for log_id, (rows, stored) in chosen.items():
        yield from position_rows(log_id, stored)
        prefix = row_prefix(log_id, stored.generation)
        for key, value in LogRows(rows, log_id, stored.generation).all():
            yield prefix + key, value


def _found(store: StateStore, reports: Sequence[str]) -> FoundRows:
    checkpoints, damaged = _checkpoints_of(store)
    reports = [*reports, *_set_aside(store, [*damaged])]
    return FoundRows(store, checkpoints, all_stored(store), losses_of(store), reports)


def _checkpoints_of(store: StateStore) -> tuple[list[tuple[str, Mapping[int, StoredState]]], dict[str, str]]:
    """The positions in each checkpoint, and the reason for each whose positions cannot be read."""
    found, damaged = list[tuple[str, Mapping[int, StoredState]]](), dict[str, str]()
    for name in restorable(store):
        try:
            rows = store.open_checkpoint(name)
            try:
                found.append((name, all_stored(rows)))
            finally:
                rows.close()
        except StateDamaged as error:
            damaged[name] = str(error)
    return found, damaged


def _set_aside(store: StateStore, names: Sequence[str]) -> list[str]:
    return [f"checkpoint {name} of coordinators' rows is damaged: it is in {store.set_aside(name)}" for name in names]


def _damage_of(store: StateStore, name: str) -> str:
    try:
        rows = store.open_checkpoint(name)
    except StateDamaged as error:
        return str(error)
    try:
        return _damage_in(rows)
    finally:
        rows.close()


def _damage_in(rows: StateRows) -> str:
    try:
        _read(rows.scan(*ALL_ROWS))
    except StateDamaged as error:
        return str(error)
    return ""


def _read(rows: Iterator[tuple[bytes, bytes]]) -> None:
    deque(rows, maxlen=0)
