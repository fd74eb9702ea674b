"""The coordinators that run on a node: their rows are under the data directory once there are any."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import StorageFailed
from duramen.base.ports import Clock, StateStore, Worker
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.runtime import Runtime, RuntimeParts
from duramen.coordinators.runtime.shard import ShardKind
from duramen.host.rocksdb import RocksStateStore
from duramen.service.broker import Broker
from duramen.storage.store import Store

__all__ = ["Coordinators"]

_DIRECTORY: Final = "coordinators"
_ROWS: Final = "rows"


class Coordinators:
    """The runtime of a node and its store, which is opened when there is a shard whose state is rows."""

    def __init__(
        self, data_dir: Path, broker: Broker, store: Store, worker: Worker, clock: Clock, deadlines: Deadlines,
        kinds: Sequence[ShardKind[Any]], report: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._directory = data_dir / _DIRECTORY
        self._report = report
        self._rows: StateStore | None = None
        records = [kind.rows.checkpoint_records for kind in kinds if kind.rows is not None]
        states = RowStates(self._open, worker, report, min(records), store.each_log) if records else None
        parts = RuntimeParts(broker.membership, broker.streams, store, broker.caller, clock, deadlines, states)
        self.runtime = Runtime(parts, kinds)
        broker.when_led.append(self.runtime.led)
        broker.when_happened.append(self.runtime.happened)

    def _open(self) -> StateStore:
        """In the worker: rows that cannot be opened are removed, and come again from a checkpoint."""
        self._directory.mkdir(exist_ok=True)
        path = str(self._directory / _ROWS)
        try:
            self._rows = RocksStateStore(path)
        except StorageFailed as error:
            self._report(f"{error}; its rows come from a checkpoint")
            RocksStateStore.destroy(path)
            self._rows = RocksStateStore(path)
        return self._rows

    def close(self) -> None:
        """Give the store back; nothing uses it any more."""
        if self._rows is not None:
            self._rows.close()
