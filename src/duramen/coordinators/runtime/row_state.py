"""A log's state as rows: applied in jobs, or immediately if the log has everything that it is built from."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from duramen.base.errors import CoordinatorLoading, DuramenError, StateDamaged
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.applying import Done
from duramen.coordinators.runtime.batches import CommittedBatch, decoded, unapplied, without_markers
from duramen.coordinators.runtime.layout import EMPTY, LogRows, StoredState
from duramen.coordinators.runtime.rows import MakeChanges, RowStates
from duramen.coordinators.runtime.shard import BatchRowKind, RowKind
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage

__all__ = ["RowState", "changes_by"]


def changes_by(kind: RowKind | BatchRowKind, partition: Partition) -> MakeChanges:
    """The changes of a partition's rows by batches."""

    def make(
        found: list[bytes], offset: int, rows: StateRows
    ) -> tuple[Sequence[DecodedRecord], Mapping[bytes, bytes | None]]:
        if isinstance(kind, BatchRowKind):
            return (), kind.changes(partition, without_markers(found), offset, rows)
        new = unapplied(found, offset)
        return new, kind.changes(new, rows)

    return make


class RowState:
    """The state of one log, for an Applier and for the leader's shard: `leads` says whether this node leads.

    `on_records` receives the applied records if a shard has memory derived from them, `on_keys` the keys of rows.
    """

    def __init__(
        self, states: RowStates, kind: RowKind | BatchRowKind, partition: Partition, leads: Callable[[], bool],
        on_records: Callable[[Sequence[DecodedRecord]], None],
        on_keys: Callable[[Collection[bytes]], None] | None = None, lost: OnDamage = lambda *_: None,
    ) -> None:  # fmt: skip
        self._states = states
        self._lost = lost
        self._kind = kind
        self._whole = kind if isinstance(kind, RowKind) and not kind.is_cut else None  # set if the log keeps it all
        self._partition = partition
        self._make = changes_by(kind, partition)
        self._leads = leads
        self._on_records = on_records
        self._on_keys = on_keys
        self._source: object = None  # the source of `_found`
        self._found: LogRows
        self._begun = -1, -1  # the last generation started here, and the log's cleaned offset then

    @property
    def available(self) -> bool:
        """Whether the state can be used now."""
        return self._states.available

    def position(self, log: Log) -> int:
        """The first offset that is not applied."""
        return self._stored(log).offset

    def _stored(self, log: Log) -> StoredState:
        """The position of the state; if it lacks records that a compacted log no longer has, the beginning."""
        found = self._states.stored(log, leads=self._leads())
        if self._kind.is_cut:
            return found
        least = log.start_offset
        if self._begun != (found.generation, log.cleaned_offset):
            least = max(least, log.cleaned_offset)  # compaction may have dropped tombstones that are not applied
        return found if found.generation and found.offset >= least else EMPTY._replace(offset=log.start_offset)

    def apply(self, log: Log, found: list[bytes], next_offset: int, done: Done) -> None:
        """Apply batches: in a job, or at once if the log keeps all records of the state."""
        if self._whole is not None:
            try:
                self.apply_at_once(log, decoded(found, self._stored(log).offset, self._lost), next_offset)
            except DuramenError as error:
                done(error)
            else:
                done(None)
            return
        base, cleaned_offset = self._stored(log), log.cleaned_offset

        def applied(error: DuramenError | None) -> None:
            if error is None and base.generation == 0:
                self._begun = self._states.stored(log, leads=False).generation, cleaned_offset
            done(error)

        self._states.apply(
            log, self._make, base, found, next_offset, applied, self._on_records if self._kind.has_memory else None,
            self._on_keys,
        )  # fmt: skip

    def apply_at_once(self, log: Log, batches: Sequence[CommittedBatch], next_offset: int) -> None:
        """Apply batches that start at the position. Raises CoordinatorLoading if rows are damaged."""
        base, cleaned_offset, kind = self._stored(log), log.cleaned_offset, self._whole
        if kind is None:
            raise CoordinatorLoading("rows whose log is cut are written before they are read")
        found = [record for batch in batches for record in batch.records]

        def make(rows: StateRows) -> Mapping[bytes, bytes | None]:
            if kind.transactions is not None:
                return kind.transactions(batches, rows, self._lost)
            return kind.changes(found, rows)

        try:
            self._states.apply_at_once(log, base, next_offset, make)
        except StateDamaged as error:
            raise self._damaged(error) from None
        if base.generation == 0:
            self._begun = self._states.stored(log, leads=False).generation, cleaned_offset
        if kind.has_memory:
            self._on_records(found)

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`. Raises CoordinatorLoading while rows are being restored or about to be.

        Raises StorageFailed if they cannot be read now.
        """
        try:
            return self._rows().get(key)
        except StateDamaged as error:
            raise self._damaged(error) from None

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The values of `keys`. Raises like `get`."""
        try:
            return self._rows().get_many(keys)
        except StateDamaged as error:
            raise self._damaged(error) from None

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `first <= key < end` in order. Raises like `get`."""
        try:
            yield from self._rows().scan(first, end)
        except StateDamaged as error:
            raise self._damaged(error) from None

    def ceiling(self, key: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The first entry at or after `key`, before `end`. Raises like `get`."""
        try:
            return self._rows().ceiling(key, end)
        except StateDamaged as error:
            raise self._damaged(error) from None

    def ceilings(self, keys: Sequence[bytes], end: bytes) -> Sequence[tuple[bytes, bytes] | None]:
        """For each key the first entry at or after it, before `end`. Raises like `get`."""
        try:
            return self._rows().ceilings(keys, end)
        except StateDamaged as error:
            raise self._damaged(error) from None

    def _rows(self) -> LogRows:
        if not self._states.available:
            raise CoordinatorLoading("the rows are being restored")
        log = self._partition.log
        source = self._states.source(log)
        if self._source != source:
            self._source, self._found = (
                source,
                self._states.rows(log, self._stored(log), at_once=self._whole is not None),
            )
        return self._found

    def _damaged(self, error: StateDamaged) -> CoordinatorLoading:
        self._states.restore(error, lambda: None)
        return CoordinatorLoading(f"the rows are damaged: {error}")
