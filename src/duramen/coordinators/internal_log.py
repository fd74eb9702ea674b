"""One of the broker's own streams and the view that is kept of it: storing records, and who answers for them.

A node that is alone answers for all partitions; a member of a cluster for those it leads, once they are taken in.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
    NotLeader,
)
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import Header
from duramen.coordinators.catchup import CatchingUp
from duramen.coordinators.led_partitions import Coordinated, CoordinatorKeeper
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage
from duramen.storage.store import Store
from duramen.storage.view.view import View

__all__ = ["KeptStream", "LogDescription", "Taker"]

Done = Callable[[DuramenError | None], None]


class Taker(CoordinatorKeeper, Protocol):
    """A keeper that also knows what a batch makes of the view."""

    def take(self, log: Log, lost: OnDamage, found: Header, batch: bytes) -> None:
        """Bring the view to the batch's end; `lost` is told of what cannot be read."""


class LogDescription(NamedTuple):
    """How users are told of it: the stream's name, what the view has, and what it means that a record is lost."""

    stream: str
    of: str
    cost: str


class KeptStream:
    """A stream whose view `taker` keeps. It may not be there yet."""

    def __init__(
        self,
        store: Store,
        view: View,
        taker: Taker,
        report: Callable[[str], None],
        words: LogDescription,
        *,
        alone: bool,
    ) -> None:
        """`alone`: whether no other node may lead any of the partitions."""
        self.alone = alone
        self.stream: Stream | None = None
        self._view = view
        self._report = report
        self._words = words
        self._catching_up = CatchingUp(store, view, taker.take, of=words.of, stream=words.stream, cost=words.cost)
        self._coordinated = Coordinated(store, view, self._catching_up, taker, report)

    @property
    def partitions(self) -> Sequence[Partition]:
        """Those of the stream; none where it is not there."""
        return () if self.stream is None else self.stream.partitions

    def there(self) -> Stream:
        """The stream. Raises CoordinatorLoading."""
        if self.stream is None:
            raise CoordinatorLoading(f"the stream {self._words.stream} is not there yet")
        return self.stream

    def keeps(self, log: Log) -> bool:
        """Whether the log is one of the stream's."""
        return self.stream is not None and log.key.stream_id == self.stream.id

    def recover(
        self, fitted: Callable[[], None], done: Callable[[DuramenError | OSError | None], None], *, is_foreign: bool
    ) -> None:
        """Bring the view to the end of the log, from the position it holds or, where that does not fit, anew.

        `fitted` is called once it is known what the view keeps; a view that `is_foreign` keeps nothing. What is damaged
        is reported, and the rest taken in. Where the node is not alone nothing is read yet.
        """
        if is_foreign:
            self._view.discard()
        if not self.alone:
            done(None)
            return
        self._catching_up.fit(self.partitions, self._report)
        fitted()
        self._catching_up.go_on(self.partitions, self._report, done)

    # -- who answers --------------------------------------------------------------------------------

    def led(self, partition: Partition, *, leads: bool) -> None:
        """Whether this node leads a partition from here on; those of other streams do not matter."""
        if self.stream is None or partition.stream is not self.stream:
            return
        if leads:
            self._coordinated.begin(partition)
        else:
            self._coordinated.end(partition)

    def follow(self) -> None:
        """Take in what others have stored: there is less to do where this node takes their place."""
        for partition in () if self.alone else self.partitions:
            self._coordinated.follow(partition)

    def coordinates(self, partition: Partition) -> bool:
        """Whether what is in a partition is coordinated here."""
        return self._coordinated.coordinates(partition)

    def check(self, partition: Partition, what: str) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless `what` is coordinated here."""
        self._coordinated.check(partition, what)

    # -- storing ------------------------------------------------------------------------------------

    def append(
        self, partition: Partition, batch: bytearray, found: Header, apply: Callable[[int], None], done: Done
    ) -> None:
        """Append a batch; `apply` takes it into the view by its base offset once it is committed, then `done`.

        NotCoordinator where this node leads the partition no more.
        """
        records = found.last_offset_delta + 1

        def appended(base_offset: int, error: DuramenError | None) -> None:
            if error is None:
                end_offset = base_offset + records
                self._coordinated.settle(partition, base_offset, end_offset, partial(apply, base_offset), done)
                return
            if isinstance(error, NotEnoughReplicasAfterAppend | NotLeader):
                self._coordinated.again(partition)
            done(NotCoordinator(str(error)) if isinstance(error, NotLeader) else error)

        partition.store(batch, found, appended)

    def marked(self, partition: Partition, marker_offset: int, apply: Callable[[], None]) -> None:
        """A marker that others have appended is committed: `apply` takes it into the view."""
        self._coordinated.applied(partition, marker_offset, marker_offset + 1, apply)
