"""Any node takes what clients want of any partition: it does it itself, or asks who leads. Over HTTP, for people."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.base.positions import Position
from duramen.broker.broker import Broker
from duramen.broker.forwarding.appending import Batch, Delivery
from duramen.broker.forwarding.asking import Asking, Errand
from duramen.broker.forwarding.errands import Deleting, Managing, Reading
from duramen.broker.forwarding.here import Found
from duramen.broker.forwarding.requests import Answer, Bytes, Fate, Manage, Managed
from duramen.broker.forwarding.room import Room
from duramen.broker.forwarding.serving import Serving
from duramen.broker.forwarding.ways import Way, Ways
from duramen.broker.partition import Partition

__all__ = ["WITHIN_MS", "Forwarding", "Nowhere"]

T = TypeVar("T")

WITHIN_MS: Final = 10_000
"""How long a leader is looked for, where nothing else is said."""


class _Open(Protocol):
    def stop(self) -> None:
        """Nobody is asked any more: tell who waits."""


class Nowhere:
    """The Way of a node that is alone."""

    def ask_records(self, node_id: int, body: Buffer, done: Callable[[Buffer | None], None]) -> bool:
        """There is nobody."""
        del node_id, body, done
        return False


class Forwarding:
    """Appends, reads and deletions, wherever they have to be done; and those of other nodes."""

    def __init__(self, broker: Broker, way: Way, room: Room) -> None:
        """`room` is for all that clients have sent and wait for."""
        self.room = room
        self._ways = Ways(broker, way, room)
        self._serving = Serving(self._ways)
        self._open: dict[_Open, None] = {}

    def append(self, batches: Sequence[Batch], within_ms: int, done: Callable[[list[Fate]], None]) -> None:
        """Append batches of one stream, as with acks=all; `done` gets the fate of each, in their order."""

        def told(fates: list[Fate]) -> None:
            self._open.pop(delivery, None)
            done(fates)

        delivery = Delivery(self._ways, batches, within_ms, told)
        self._open[delivery] = None
        delivery.begin()

    def read(
        self, partition: Partition, position: Position, max_bytes: int, max_wait_ms: int,
        done: Callable[[Found | Bytes | DuramenError | OSError], None],
    ) -> Callable[[], None]:  # fmt: skip
        """Read from a place on, as soon as there is something; returns what cancels it.

        `done` gets a slice of this node's own log, or the bytes that another node has sent.
        """
        errand: Errand[Found | Bytes] = Reading(self._ways.broker.fetches, partition, position, max_bytes, max_wait_ms)
        return self._ask(errand, max_wait_ms + WITHIN_MS, done)

    def delete(self, partition: Partition, before: int, done: Callable[[int | DuramenError | OSError], None]) -> None:
        """Delete the records before an offset, -1: before the high watermark; `done` gets the first that is left."""
        self._ask(Deleting(partition, before), WITHIN_MS, done)

    def manage(self, errand: Managing, done: Callable[[Managed | DuramenError | OSError], None]) -> Callable[[], None]:
        """Have a group's coordinator do what is wanted; returns what cancels it."""
        return self._ask(errand, WITHIN_MS, done)

    def serve_groups(self, manage: Callable[[Manage, Callable[[Answer | DuramenError], None]], None]) -> None:
        """From here on `manage` does what other nodes want of groups that are coordinated here."""
        self._serving.manage = manage

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks. Raises RequestInvalid where that cannot be read."""
        self._serving.asked(body, answer)

    def stop(self) -> None:
        """Nobody is asked any more: who waits is told so."""
        for one in list(self._open):
            one.stop()

    def _ask(
        self, errand: Errand[T], within_ms: int, done: Callable[[T | DuramenError | OSError], None]
    ) -> Callable[[], None]:
        def told(outcome: T | DuramenError | OSError) -> None:
            self._open.pop(asking, None)
            done(outcome)

        asking = Asking(self._ways, errand, within_ms, told)
        self._open[asking] = None
        asking.begin()
        return partial(self._cancel, asking)

    def _cancel(self, asking: Asking[T]) -> None:
        self._open.pop(asking, None)
        asking.cancel()
