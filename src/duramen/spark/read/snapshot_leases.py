"""Leases of a streaming query, renewed by a thread on the driver while the query runs."""

import logging
import time
from contextlib import suppress
from threading import Condition, Thread
from typing import Final, NamedTuple

from duramen.base.errors import (
    DuramenError,
    SnapshotLeaseExpired,
    SnapshotLeaseNotFound,
    StreamNotFound,
    StreamNotKeyed,
)
from duramen.spark.read.snapshot_node import RenewedLease, SnapshotNode

__all__ = ["HeldLeases", "LeaseOf"]

_log = logging.getLogger("duramen.spark")

_OVER: Final = (SnapshotLeaseExpired, SnapshotLeaseNotFound, StreamNotFound, StreamNotKeyed)
_PART: Final = 3
"""The fraction of a lease's period before its renewal, and of the rest before a failed renewal is retried."""


class LeaseOf(NamedTuple):
    """A lease on a snapshot of a stream."""

    stream: str
    lease: str


class HeldLeases:
    """The leases of a query. Pickled copies, in tasks, hold none."""

    def __init__(self, node: SnapshotNode) -> None:
        self._node = node
        self._due_s: dict[LeaseOf, float] = {}
        self._lasts_s: dict[LeaseOf, float] = {}
        self._over = set[LeaseOf]()
        self._changed = Condition()
        self._renewing: Thread | None = None
        self._stopped = False

    def __reduce__(self) -> tuple[type["HeldLeases"], tuple[SnapshotNode]]:
        return HeldLeases, (self._node,)

    def add(self, stream: str, opened: RenewedLease) -> None:
        """Hold a lease and renew it from now on."""
        one = LeaseOf(stream, opened.lease)
        with self._changed:
            self._lasts_s[one] = opened.lasts_ms / 1000
            self._due_s[one] = time.monotonic() + self._lasts_s[one] / _PART
            if self._renewing is None and not self._stopped:
                self._renewing = Thread(target=self._renew_all, name="duramen-leases", daemon=True)
                self._renewing.start()
            self._changed.notify()

    def take_over(self, stream: str, lease: str) -> bool:
        """Hold a lease that an earlier run of the query has opened; False if it is over.

        Raises ServerUnreachable …
        """
        one = LeaseOf(stream, lease)
        with self._changed:
            if one in self._due_s or one in self._over:
                return one in self._due_s
        try:
            self.add(stream, self._node.renew_lease(stream, lease))
        except (SnapshotLeaseExpired, SnapshotLeaseNotFound):
            self._over.add(one)
            return False
        return True

    def end_others(self, kept: frozenset[LeaseOf]) -> None:
        """End leases that are not `kept`. Those that cannot be ended expire."""
        with self._changed:
            ended = [one for one in self._due_s if one not in kept]
            for one in ended:
                del self._due_s[one]
            self._over.clear()
        for one in ended:
            with suppress(DuramenError):
                self._node.close_lease(*one)

    def stop(self) -> None:
        """Stop renewals: the leases expire, unless another run takes them over."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _renew_all(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                now_s = time.monotonic()
                due = [one for one, due_s in self._due_s.items() if due_s <= now_s]
                if not due:
                    self._changed.wait(min(self._due_s.values()) - now_s if self._due_s else None)
            for one in due:
                self._renew(one)

    def _renew(self, one: LeaseOf) -> None:
        over = False
        share = _PART
        try:
            self._node.renew_lease(*one, patiently=False)
        except _OVER as error:
            over = True
            if one in self._due_s:
                _log.warning("stream %s: a snapshot is held open no longer: %s", one.stream, error)
        except DuramenError:
            share = _PART * _PART
        with self._changed:
            if over:
                self._due_s.pop(one, None)
                self._over.add(one)
            elif one in self._due_s:
                self._due_s[one] = time.monotonic() + self._lasts_s[one] / share
