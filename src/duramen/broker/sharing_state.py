"""What share groups have been delivered, as it is kept: records in `__share_group_state`, rows in a view.

Rows of the view: byte 1, share partition, 0 -> offset and value of its snapshot; byte 1, share partition, 1, offset
-> the value of an update since. So an update costs a row, however much is in flight, and a share partition that
nobody uses costs no memory. The log is cut below the oldest snapshot that counts.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

from duramen.base.errors import BatchCorrupt, CoordinatorLoading, DuramenError
from duramen.base.ports import Clock
from duramen.broker.catching_up import CatchingUp
from duramen.broker.streams import Stream
from duramen.codec.batch import Header, NewRecord, Record, check, encode, records
from duramen.groups.share_records import (
    ShareKey,
    ShareState,
    ShareUpdate,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    encode_update,
    merged,
    state_partition_for,
)
from duramen.storage.log import Log
from duramen.storage.scanning import OnDamage
from duramen.storage.store import Store
from duramen.storage.view import Change, View

__all__ = ["SHARE_STATE_CONFIG", "SHARE_STATE_STREAM", "ShareStates"]

SHARE_STATE_STREAM: Final = "__share_group_state"
SHARE_STATE_CONFIG: Final = {
    "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "durability": "sync",
    "segment.bytes": str(100 * 1024 * 1024),
}  # fmt: skip

_ROW: Final = b"\x01"
_AFTER_ROWS: Final = b"\x02"
_SNAPSHOT: Final = b"\x00"
_UPDATE: Final = b"\x01"
_END: Final = b"\x02"
_LENGTH = struct.Struct(">H")
_PLACE = struct.Struct(">16si")
_OFFSET = struct.Struct(">q")

Done = Callable[[DuramenError | None], None]


def _group_prefix(group: str) -> bytes:
    encoded = group.encode()
    return _ROW + _LENGTH.pack(len(encoded)) + encoded


def _prefix(key: ShareKey) -> bytes:
    return _group_prefix(key.group) + _PLACE.pack(key.topic_id.bytes, key.partition)


def _key_of(row: bytes) -> ShareKey:
    (length,) = _LENGTH.unpack_from(row, 1)
    topic, partition = _PLACE.unpack_from(row, 3 + length)
    return ShareKey(row[3 : 3 + length].decode(), UUID(bytes=topic), partition)


def _end_of(prefix: bytes) -> bytes:
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


class ShareStates:
    """Stores and reads the state of share partitions. What is read is durable."""

    def __init__(self, store: Store, view: View, clock: Clock, *, alone: bool) -> None:
        """`alone`: whether no other node may lead any of the partitions."""
        self.alone = alone
        self._store = store
        self._view = view
        self._clock = clock
        self._stream: Stream | None = None
        self._catching_up = CatchingUp(
            store, view, self._take, of="share groups", stream=SHARE_STATE_STREAM,
            cost="so what a share group acknowledged there may be delivered again",
        )  # fmt: skip

    def use(self, stream: Stream) -> None:
        """The stream `__share_group_state`."""
        self._stream = stream

    @property
    def ready(self) -> bool:
        """Whether there is somewhere to store."""
        return self._stream is not None

    def recover(self, report: Callable[[str], None], done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Bring the view to the end of the log, from the position it holds or, where that does not fit, anew.

        Where the node is not alone nothing is read yet.
        """
        if not self.alone:
            done(None)
            return
        partitions = self._stream.partitions if self._stream is not None else []
        self._catching_up.fit(partitions, report)
        self._catching_up.go_on(partitions, report, done)

    def _take(self, log: Log, lost: OnDamage, found: Header, batch: bytes) -> None:
        changes: list[Change] = []
        offset = found.base_offset
        try:
            for record in records(batch, verify=False):
                offset = record.offset
                try:
                    changes += self._changes(record, changes)
                except BatchCorrupt as error:
                    lost(offset, offset, error)
        except BatchCorrupt as error:
            lost(offset, found.next_offset - 1, error)
        self._view.apply(log, found.next_offset, changes)

    def _changes(self, record: Record, before: Sequence[Change]) -> list[Change]:
        """The rows that a record changes, behind those that the same batch has changed `before`."""
        decoded = None if record.key is None else decode_key(record.key)
        if decoded is None:
            return []
        key, update = decoded
        prefix = _prefix(key)
        if update:
            if record.value is not None:
                decode_update(record.value)
            return [(prefix + _UPDATE + _OFFSET.pack(record.offset), record.value)]
        if record.value is not None:
            decode_snapshot(record.value)
        # A snapshot takes the place of the updates before it.
        old = [row for row, _ in self._view.scan(prefix + _UPDATE, prefix + _END)]
        old += (row for row, value in before if value is not None and row.startswith(prefix + _UPDATE))
        value = None if record.value is None else _OFFSET.pack(record.offset) + record.value
        return [*((row, None) for row in old), (prefix + _SNAPSHOT, value)]

    def flush(self, done: Callable[[BaseException | None], None] | None = None) -> None:
        """Have the view survive a crash as it is."""
        self._view.flush(done)

    # -- writing ------------------------------------------------------------------------------------

    def _append(self, at: int, rows: Sequence[tuple[bytes, bytes | None]], done: Done) -> None:
        """Append records to a partition of the stream; `done` once they are durable and in the view."""
        if self._stream is None:
            done(CoordinatorLoading("the stream of share groups is not there yet"))
            return
        partition = self._stream.partitions[at]
        log = partition.log
        now_ms = self._clock.wall_ms()
        batch = encode(NewRecord(now_ms, key, value) for key, value in rows)

        def appended(base_offset: int, error: DuramenError | None) -> None:
            if error is None:
                changes: list[Change] = []
                for index, (key, value) in enumerate(rows):
                    changes += self._changes(Record(base_offset + index, now_ms, key, value, ()), changes)
                self._view.apply(log, base_offset + len(rows), changes)
            done(error)

        partition.store(batch, check(batch), appended)

    def _partition_for(self, key: ShareKey) -> int:
        return state_partition_for(key, len(self._stream.partitions)) if self._stream is not None else 0

    def write_all(self, states: Sequence[tuple[ShareKey, ShareState | None]], done: Done) -> None:
        """Store snapshots of share partitions, None: forget what there is; `done` once all of it is durable."""
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for key, state in states:
            value = None if state is None else encode_snapshot(self._stamped(state))
            by_partition.setdefault(self._partition_for(key), []).append((encode_key(key), value))
        left = len(by_partition)
        failed: list[DuramenError] = []

        def stored(error: DuramenError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failed.append(error)
            if not left:
                done(failed[0] if failed else None)

        if not by_partition:
            done(None)
        for at, rows in by_partition.items():
            self._append(at, rows, stored)

    def _stamped(self, state: ShareState) -> ShareState:
        now_ms = self._clock.wall_ms()
        return state._replace(created_ms=state.created_ms or now_ms, written_ms=now_ms)

    def update(self, key: ShareKey, update: ShareUpdate, done: Done) -> None:
        """Store a change of a share partition; `done` once it is durable."""
        self._append(self._partition_for(key), [(encode_key(key, update=True), encode_update(update))], done)

    # -- reading ------------------------------------------------------------------------------------

    def get(self, key: ShareKey) -> ShareState | None:
        """All that is kept of a share partition."""
        prefix = _prefix(key)
        snapshot = self._view.get(prefix + _SNAPSHOT)
        if snapshot is None:
            return None
        updates = [decode_update(value) for _, value in self._view.scan(prefix + _UPDATE, prefix + _END)]
        return merged(decode_snapshot(snapshot[_OFFSET.size :]), updates)

    def knows(self, key: ShareKey) -> bool:
        """Whether anything is kept of a share partition."""
        return self._view.get(_prefix(key) + _SNAPSHOT) is not None

    def has(self, group: str) -> bool:
        """Whether anything is kept of a group."""
        return self.ready and next(self.of_group(group), None) is not None

    def of_group(self, group: str) -> Iterator[ShareKey]:
        """The share partitions of a group, by topic id and partition."""
        prefix = _group_prefix(group)
        yield from self._keys(prefix, _end_of(prefix))

    def each(self) -> Iterator[ShareKey]:
        """Every share partition there is."""
        yield from self._keys(_ROW, _AFTER_ROWS)

    def each_group(self) -> Iterator[str]:
        """The names of all groups of which something is kept."""
        first = _ROW
        while (found := next(self._view.scan(first, _AFTER_ROWS), None)) is not None:
            group = _key_of(found[0]).group
            yield group
            first = _end_of(_group_prefix(group))

    def _keys(self, first: bytes, end: bytes) -> Iterator[ShareKey]:
        for row, _ in self._view.scan(first, end):
            key = _key_of(row)
            if row == _prefix(key) + _SNAPSHOT:
                yield key

    # -- letting go ---------------------------------------------------------------------------------

    def prune(self, most_records: int, rewrite: Callable[[ShareKey], None]) -> None:
        """Cut each partition of the log below the oldest snapshot that counts.

        Where that leaves more than `most_records`, `rewrite` is asked to store those of the older half anew.
        """
        if self._stream is None:
            return
        oldest: dict[int, int] = {}
        for row, value in self._view.scan(_ROW, _AFTER_ROWS):
            key = _key_of(row)
            if row != _prefix(key) + _SNAPSHOT:
                continue
            at, (offset,) = self._partition_for(key), _OFFSET.unpack_from(value)
            oldest[at] = min(offset, oldest.get(at, offset))
            log = self._stream.partitions[at].log
            if log.high_watermark - offset > most_records // 2 and log.high_watermark - log.start_offset > most_records:
                rewrite(key)
        cuts = []
        for at, partition in enumerate(self._stream.partitions):
            applied = self._view.position(partition.log)
            until = oldest.get(at, applied)
            if partition.log.start_offset < until <= applied:
                cuts.append((partition.log, until))

        def flushed(error: BaseException | None) -> None:
            # A view that falls back behind the cut would never hear of what was forgotten there.
            for log, until in cuts if error is None else ():
                self._store.delete_before(log, until, lambda _: None)

        if cuts:
            self._view.flush(flushed)
