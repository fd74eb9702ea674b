"""Repairs the log of a replica from other replicas: only the damaged ranges, so that all sound data stays.

Two replicas with damage at different places repair each other, and neither has to be leader. This node's offsets,
leader epochs and block CRCs prove a range right.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import BatchCorrupt, DuramenError
from duramen.base.ports import Buffer
from duramen.broker.replicas.log import ReplicaLog
from duramen.codec.batch import CRC_START, batches
from duramen.codec.crc import crc32c
from duramen.metadata.partitions import PartitionId
from duramen.storage.log.log import Log
from duramen.storage.maintenance.repair import Patch, can_patch
from duramen.storage.segment.damage import Damage
from duramen.storage.segment.segment import Segment
from duramen.storage.store import Store

__all__ = ["Repair", "RepairOutcome", "RepairPeers", "RepairPiece", "read_range"]

_PIECE_BYTES: Final = 1 << 20
_LARGEST_BYTES: Final = 3 << 20


class RepairPiece(NamedTuple):
    """A node's records in a range: whole batches from its start on; `data` is None if they are too large to send.

    `covers`: whether its log reaches over the start of the range, readable there or not.
    """

    has: bool
    data: bytes | None = b""
    covers: bool = True


class RepairPeers(Protocol):
    """The controller and the other nodes, as the repair of replicas needs them."""

    def report_damage(self, place: PartitionId, done: Callable[[], None]) -> None:
        """Report to the controller that the replica lacks records; `done` once the decision takes effect here."""

    def publish_again(self, place: PartitionId) -> None:
        """Have `Replicas.on_partition_state` called with the known state of the partition."""

    def fetch_range(
        self, node_id: int, place: PartitionId, first: int, last: int, done: Callable[[RepairPiece | None], None]
    ) -> None:
        """Ask a node for batches from `first` on, up to the one that holds `last`; None where it does not answer."""


class RepairOutcome(Enum):
    """The result of a repair."""

    WHOLE = "every damaged range is repaired"
    UNFIT = "the leader has other records in the range, or none, or they do not fit into the file"
    LACKING = "no replica that responds has the whole range"


class _Range(NamedTuple):
    """Lost offsets; `damage` if they are in a file."""

    first: int
    last: int
    damage: Damage | None


def read_range(store: Store, log: Log, first: int, last: int, done: Callable[[RepairPiece], None]) -> None:
    """The log's records in a range, for another node."""

    def read(found: list[Buffer] | DuramenError) -> None:
        data = b"" if isinstance(found, DuramenError) else b"".join(bytes(piece) for piece in found)
        end = max((at + head.size for at, head in batches(data) if head.base_offset <= last), default=0)
        done(RepairPiece(has=end > 0, data=data[:end] if end <= _LARGEST_BYTES else None))

    if log.start_offset <= first < log.end_offset:
        ReplicaLog(store, log).read(first, _PIECE_BYTES, read)
    else:
        done(RepairPiece(has=False, covers=False))


class Repair:
    """Repairs one log, segment by segment; `done` is called once. `nodes` are asked in their order.

    Offsets that the leader's log does not reach need not be in any log: the leader has all committed records.
    """

    def __init__(
        self,
        store: Store,
        peers: RepairPeers,
        place: PartitionId,
        log: Log,
        nodes: Sequence[int],
        leader_id: int | None,
        done: Callable[[RepairOutcome], None],
    ) -> None:
        self._store = store
        self._peers = peers
        self._place = place
        self._log = log
        self._nodes = nodes
        self._leader_id = leader_id
        self._done = done
        self._segments = [(segment, end) for segment, end in log.with_ends() if segment.damage]
        self._gaps = [_Range(first, last, None) for first, last in log.damage if last >= log.start_offset]
        self._found: set[RepairOutcome] = set()

    def begin(self) -> None:
        """Request the missing records."""
        if self._gaps:
            self._fetch(self._gaps.pop(), lambda _: self.begin())
        elif self._segments:
            segment, end_offset = self._segments.pop()
            self._collect(segment, [_range(damage, end_offset) for damage in segment.damage], [])
        elif RepairOutcome.LACKING in self._found:
            self._done(RepairOutcome.LACKING)
        else:
            self._done(RepairOutcome.UNFIT if self._found else RepairOutcome.WHOLE)

    def _collect(self, segment: Segment, left: list[_Range], patches: list[Patch]) -> None:
        """Fetch the ranges of a segment, then patch all of them at once: they may share blocks."""
        if not left:
            self._store.repairer.repair(self._log, segment, patches, self._patched)
            return
        lost, damage = left[0], left[0].damage

        def fetched(data: bytes | None) -> None:
            if data is None or damage is None:
                self.begin()
            else:
                self._collect(segment, left[1:], [*patches, Patch(damage, data)])

        self._fetch(lost, fetched)

    def _patched(self, patched: bool) -> None:
        if not patched:
            self._found.add(RepairOutcome.UNFIT)
        self.begin()

    def _fetch(self, lost: _Range, done: Callable[[bytes | None], None]) -> None:
        fetched = partial(self._fetched, done)
        _Fetch(self._peers, self._place, self._log, lost, self._nodes, self._leader_id, fetched).ask()

    def _fetched(self, done: Callable[[bytes | None], None], found: bytes | RepairOutcome) -> None:
        if isinstance(found, RepairOutcome):
            self._found.add(found)
        done(None if isinstance(found, RepairOutcome) else found)


class _Fetch:
    """Fetches the bytes of one range, piece by piece, from the first node that has them."""

    def __init__(
        self,
        peers: RepairPeers,
        place: PartitionId,
        log: Log,
        lost: _Range,
        nodes: Sequence[int],
        leader_id: int | None,
        done: Callable[[bytes | RepairOutcome], None],
    ) -> None:
        self._peers = peers
        self._place = place
        self._log = log
        self._lost = lost
        self._left = list(nodes)
        self._leader_id = leader_id
        self._done = done
        self._outcome = RepairOutcome.LACKING
        self._data = b""
        self._offset = lost.first

    def ask(self) -> None:
        """Ask the next node, or the same one for more."""
        if self._left:
            lost = self._lost
            self._peers.fetch_range(self._left[0], self._place, self._offset, lost.last, self._took)
        else:
            self._done(self._outcome)

    def _took(self, piece: RepairPiece | None) -> None:
        damage = self._lost.damage
        if piece is None or not piece.has:
            if piece is not None and not piece.covers and self._left[0] == self._leader_id:
                self._outcome = RepairOutcome.UNFIT
            self._next()
        elif damage is None or not can_patch(damage) or piece.data is None or not self._fits(piece.data):
            self._outcome = RepairOutcome.UNFIT
            self._next()
        elif self._offset <= self._lost.last:
            self.ask()
        elif len(self._data) == damage.end - damage.start:
            self._done(self._data)
        else:
            self._outcome = RepairOutcome.UNFIT
            self._next()

    def _next(self) -> None:
        self._left.pop(0)
        self._data, self._offset = b"", self._lost.first
        self.ask()

    def _fits(self, data: bytes) -> bool:
        """Whether these batches follow, as this log's leaders ordered them; then they are taken."""
        offset, end = self._offset, 0
        try:
            found = list(batches(data))
        except BatchCorrupt:
            return False
        for at, head in found:
            end = at + head.size
            sound = head.magic == 2 and crc32c(memoryview(data)[at + CRC_START : end]) == head.crc
            if not sound or head.base_offset != offset or self._log.takeovers.epoch_at(offset) != head.leader_epoch:
                return False
            offset = head.next_offset
        if not 0 < end == len(data):
            return False
        self._data += data
        self._offset = offset
        return True


def _range(damage: Damage, end_offset: int) -> _Range:
    return _Range(damage.first_offset, damage.last_offset if damage.last_offset >= 0 else end_offset - 1, damage)
