"""Refused batches of idempotent producers that will be sent again; later batches are refused until then.

For a producer that a log does not know, any sequence may be accepted (see `producers`). A batch after a refused one
would then be accepted, and the refused one never again. For a known producer the sequences show the gap, but the answer
OUT_OF_ORDER_SEQUENCE_NUMBER makes librdkafka raise its epoch and resend every unacknowledged batch, also appended ones.
A retriable error makes the client resend all of them in order. Pure.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.base.ports import Clock
from duramen.codec.batch import Header
from duramen.codec.sequences import is_before, producer_text

__all__ = ["NEW_LEADER_MS", "REMEMBERED_MS", "SENT_AGAIN", "Refusals"]

REMEMBERED_MS: Final = 600_000
NEW_LEADER_MS: Final = 10_000
"""The period in which a new leader takes a gap for batches that the previous leader refused and that are resent."""

_MOST: Final = 50_000  # the producers with the newest refused batches; about 15 MB

SENT_AGAIN: Final[tuple[type[DuramenError], ...]] = (
    errors.BatchCorrupt, errors.ConcurrentTransactions, errors.CoordinatorLoading, errors.FencedLeaderEpoch,
    errors.LogDamaged, errors.NodeStopping, errors.NotCoordinator, errors.NotEnoughReplicas, errors.NotLeader,
    errors.OutcomeUnknown, errors.RequestTimedOut, errors.StorageFailed, errors.StorageFull, errors.StreamNotFound,
    errors.TransactionsFull, errors.UnknownLeaderEpoch,
)  # fmt: skip
"""Errors after which a batch is not appended, and its producer resends it: Kafka's retriable errors."""


_SAID_AGAIN: Final = (errors.NotEnoughReplicas, errors.NotLeader, errors.StorageFailed, errors.StorageFull)
"""Errors after which every client resends a batch and takes it for not appended."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    until_ms: int
    error: type[DuramenError]


class Refusals:
    """The first refused batch of each producer and place: for ten minutes, and for a maximum number of producers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: OrderedDict[tuple[Hashable, int], _Refused] = OrderedDict()  # in the order of their expiry

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, place: Hashable, head: Header, error: DuramenError | None = None) -> None:
        """A batch was refused, and will be resent; `error` is the reason, if the log or its partition gave one."""
        sequence, now_ms = head.base_sequence, self._clock.monotonic_ms()
        if head.producer_id < 0 or sequence < 0:
            return
        key = place, head.producer_id
        known = self._refused.pop(key, None)
        if known is not None and known.epoch == head.producer_epoch and not is_before(sequence, known.sequence):
            sequence = known.sequence
        why = next((kind for kind in _SAID_AGAIN if isinstance(error, kind)), errors.NotLeader)
        self._refused[key] = _Refused(head.producer_epoch, sequence, now_ms + REMEMBERED_MS, why)
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        while self._refused:
            key, oldest = next(iter(self._refused.items()))
            if oldest.until_ms > now_ms and len(self._refused) <= _MOST:
                return
            del self._refused[key]

    def check(self, place: Hashable, head: Header) -> None:
        """Raise a retriable error if an earlier batch was refused and has not been resent."""
        found = self._refused.get((place, head.producer_id))
        if found is None or found.epoch != head.producer_epoch or head.base_sequence < 0:
            return
        late = found.until_ms <= self._clock.monotonic_ms()
        if not late and is_before(found.sequence, head.base_sequence):
            raise found.error(
                f"{producer_text(head.producer_id)} writes sequence {head.base_sequence}, but {found.sequence} was"
                " refused and must be sent again first"
            )

    def taken(self, place: Hashable, head: Header) -> None:
        """A batch is in the log now: forget refused batches before it."""
        key = place, head.producer_id
        found = self._refused.get(key)
        if found is None or found.epoch > head.producer_epoch:
            return
        if found.epoch < head.producer_epoch or not is_before(head.base_sequence, found.sequence):
            del self._refused[key]
