"""The subjects to which the NATS door is subscribed, and those that the server refuses."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from duramen.doors.nats.address import ServerAddress
from duramen.doors.nats.connection import NatsClientConnection

__all__ = ["Subscriptions"]

_log = logging.getLogger("duramen.nats")

_SHOWN_BYTES: Final = 80
_REFUSED: Final = "Permissions Violation for Subscription"
_TOO_LONG: Final = "maximum control line exceeded"
"""A server that sends it closes the connection."""


class Subscriptions:
    """The subjects of all bindings, on the present connection and on later ones."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._bindings: Counter[bytes] = Counter()  # how many there are to each subject
        self._refused: dict[bytes, str] = {}  # subjects that need a permission
        self._too_long: dict[bytes, str] = {}  # not subscribed to again until a connection ends that was ready
        self._connection: NatsClientConnection | None = None

    def __len__(self) -> int:
        return len(self._bindings) - len(self._too_long)

    def connected(self, connection: NatsClientConnection) -> None:
        """The server has accepted a connection: subscribe to all subjects."""
        self._connection = connection
        self._refused.clear()
        connection.subscribe([subject for subject in self._bindings if subject not in self._too_long])

    def disconnected(self, *, subscribed: bool) -> None:
        """The connection has ended; if all was `subscribed`, the next server may accept longer subjects."""
        self._connection = None
        if subscribed:
            self._too_long.clear()

    def add(self, subjects: Sequence[bytes]) -> None:
        """Bind subjects: subscribe to those without a binding."""
        new = [subject for subject in subjects if not self._bindings[subject]]
        self._bindings.update(subjects)
        if self._connection is not None and self._connection.subscribed:
            self._connection.subscribe(new)

    def remove(self, subjects: Sequence[bytes]) -> None:
        """Remove a binding of each subject, and the subscriptions without bindings."""
        self._bindings.subtract(subjects)
        gone = [subject for subject in subjects if not self._bindings[subject]]
        for subject in gone:
            del self._bindings[subject]
            self._refused.pop(subject, None)
        if self._connection is not None and self._connection.subscribed:
            self._connection.unsubscribe([subject for subject in gone if subject not in self._too_long])
        for subject in gone:
            self._too_long.pop(subject, None)

    @property
    def problem(self) -> str:
        """The first refusal; empty without one."""
        for subject, text in (self._refused | self._too_long).items():
            return f"the NATS server refuses the subscription to {subject.decode(errors='replace')}: {text}"
        return ""

    def refused(self, text: str) -> bool:
        """Note that the server refuses a subscription; returns whether `text` says so."""
        if not text.startswith(_REFUSED):
            return False
        subject = text.partition('"')[2].partition('"')[0].encode()
        if subject in self._bindings:
            self._refused[subject] = text
        return True

    def disconnecting(self, text: str) -> None:
        """The server closes the connection: if a subject is too long, which it does not report, it is the longest."""
        if not text.lower().startswith(_TOO_LONG):
            return
        subject = max(self._bindings.keys() - self._too_long.keys(), key=len, default=None)
        if subject is not None:
            self._too_long[subject] = text
            _log.error(
                "the subject %s… of %d bytes is too long for NATS at %s: its messages are not stored",
                subject[:_SHOWN_BYTES].decode(errors="replace"), len(subject), self._address,
            )  # fmt: skip
