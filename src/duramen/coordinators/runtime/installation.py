"""Installs rows of another node's checkpoint as a new generation of a log's state, page by page."""

from collections.abc import Callable

from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.base.ports import StateStore
from duramen.coordinators.runtime.applying import Done
from duramen.coordinators.runtime.layout import (
    StoredState,
    count_of,
    count_value,
    installation_key,
    new_generation,
    position_rows,
    row_prefix,
    stored_of,
)
from duramen.coordinators.runtime.rows import RowStates
from duramen.storage.log.log import Log

__all__ = ["begin_installation", "install"]


def begin_installation(states: RowStates, log: Log, done: Callable[[int | DuramenError], None]) -> None:
    """Start the installation of rows of another node's checkpoint: `done` gets their generation."""
    log_id = log.id

    def job(store: StateStore) -> int:
        generation = new_generation(store, log_id)
        store.write([(installation_key(log_id, generation), count_value(0))], ())
        return generation

    def begun(generation: int | DuramenError) -> None:
        states.sweep()  # rows of a failed installation
        done(generation)

    states.run(job, begun)


def install(
    states: RowStates, log: Log, generation: int, number: int, rows: list[tuple[bytes, bytes]],
    position: Position | None, done: Done,
) -> None:  # fmt: skip
    """Install rows after the first `number` rows.

    With `position`, they become the state, on disk when `done` is called. `done` gets CoordinatorLoading if the
    store was restored meanwhile, or has a newer state.
    """
    log_id, key = log.id, installation_key(log.id, generation)

    def job(store: StateStore) -> StoredState | None:
        before = stored_of(store, log_id)
        count = store.get(key)
        if count is None or count_of(count) != number or before.generation > generation:
            return None
        prefix = row_prefix(log_id, generation)
        puts = [(prefix + row, value) for row, value in rows]
        if position is None:
            store.write([*puts, (key, count_value(number + len(rows)))], ())
            return before
        stored = StoredState(*position, generation)
        store.write([*puts, *position_rows(log_id, stored)], [key])
        store.flush()
        return stored

    def installed(error: DuramenError | None) -> None:
        if error is None and position is not None:
            states.checkpoints.make_soon()  # no log on this node has the records of these rows
        done(error)

    states.write(log_id, job, installed)
