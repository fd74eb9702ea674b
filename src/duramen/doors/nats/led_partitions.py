"""The partitions for which a cluster node accepts messages: those that it leads, once it is ready.

It is ready once it has committed everything that the previous leader acknowledged and has recalled the message ids in
it, and once no message arrives any more that was sent before: the previous leader may have stored such messages. Until
then publishers that request a reply get an error.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, Protocol

from duramen.base.ids import StreamId
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.doors.nats.bound import BoundStream
from duramen.doors.nats.capture import Capture
from duramen.doors.nats.recall import recall
from duramen.doors.nats.succession import Succession
from duramen.metadata.events import Event, PartitionChanged
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker

__all__ = ["LedPartitions", "MessageReceiver"]

_RESTART: Final = "restart"
_LEADER_CHANGE: Final = "leader change"


class _Bound(Protocol):
    @property
    def stream(self) -> Stream: ...


class MessageReceiver(Protocol):
    """Takes messages for partitions that this node leads."""

    def streams(self) -> Iterable[_Bound]:
        """Every stream for which messages may come."""

    def find(self, stream: Stream) -> object | None:
        """A stream on this node; None if it gets no messages."""

    def lead(self, partition: Partition, *, ready: bool) -> None:
        """A partition is led; once it is `ready`, messages for it are taken."""

    def lead_no_more(self, partition: Partition) -> None:
        """Messages for it are another's from here on."""


class LedPartitions:
    """Follows the leaderships of this node. `follow` is called when a stream starts or stops being among them.

    `ready` is called when one more partition is ready, with a function to call once all messages sent by then have
    arrived.
    """

    def __init__(
        self,
        broker: Broker,
        capture: MessageReceiver,
        *,
        listened_ms: int,
        report: Callable[[str], object],
        follow: Callable[[Stream], None],
        ready: Callable[[Callable[[], None]], None],
        records_gaps: bool = True,
    ) -> None:
        """`listened_ms`: until when this node is known to have listened before its start."""
        self._records_gaps = records_gaps
        membership = broker.membership
        self._broker = broker
        self._capture = capture
        self._listened_ms = listened_ms
        self._report = report
        self._follow = follow
        self._ready = ready
        self._succession = Succession(
            broker.node_id, lambda place: membership.partition(place).leader, membership.heard_ms
        )
        self._led: dict[PartitionId, Partition] = {}
        self._streams: dict[Stream, set[PartitionId]] = {}
        self._known: set[PartitionId] = set()  # of those led, of which all is known that was acknowledged
        self._wakers: dict[PartitionId, Callable[[Partition], None]] = {}  # of those whose end is not committed yet
        self._unread: deque[Partition] = deque()  # whose message ids are to be found; the first is being read
        self._deaf = _RESTART  # why nothing comes; empty where it does

    def start(self) -> None:
        """Take over present leaderships, and follow changes."""
        for bound in list(self._capture.streams()):
            for partition in bound.stream.partitions:
                self._succession.begin(_place(partition))
            self.bound(bound.stream)
        self._broker.leader_listeners.append(self.led)
        self._broker.event_listeners.append(self._on_event)

    def leads(self, stream: Stream) -> bool:
        """Whether this node leads a partition of the stream."""
        return stream in self._streams

    # -- events of the metadata and the replicas ----------------------------------------------------

    def _on_event(self, event: Event | None) -> None:
        """None: all of it may be another."""
        if event is None:
            for bound in self._capture.streams():
                for partition in bound.stream.partitions:
                    self._succession.told(_place(partition), self._broker.now_ms())
        elif isinstance(event, PartitionChanged):
            place = PartitionId(StreamId(event.id), event.partition)
            stream = self._broker.streams.find_id(place.stream_id)
            if stream is not None and self._capture.find(stream) is not None:
                self._succession.told(place, self._broker.now_ms())

    def led(self, partition: Partition, leader_epoch: int | None) -> None:
        """Note that this node now leads a partition, in that epoch; None: it no longer leads it."""
        stream = self._broker.streams.find_id(partition.log.key.stream_id)
        if stream is None or self._capture.find(stream) is None:
            return
        if leader_epoch is None:
            self._leave(stream, partition)
        else:
            self._begin(stream, partition)

    def bound(self, stream: Stream) -> None:
        """Messages come for a stream from here on whose partitions may be led already."""
        for partition in stream.partitions:
            if partition.leads:
                self.led(partition, partition.leader_epoch)

    def deleted(self, stream: Stream) -> None:
        """The stream is gone, or no messages come for it any more."""
        for partition in stream.partitions:
            self._leave(stream, partition)
            self._succession.forget(_place(partition))

    # -- beginning to lead --------------------------------------------------------------------------

    def _begin(self, stream: Stream, partition: Partition) -> None:
        place = _place(partition)
        since_ms = self._succession.missing_since_ms(place)
        if since_ms is not None:
            cause = _LEADER_CHANGE if since_ms else _RESTART
            self._begin_gap(place, since_ms or self._listened_ms, cause)
        elif self._deaf:
            self._begin_gap(place, self._broker.now_ms(), self._deaf)
        self._led[place] = partition
        self._streams.setdefault(stream, set()).add(place)
        self._capture.lead(partition, ready=False)
        self._follow(stream)
        self._wakers[place] = waker = partial(self._advanced, place)
        partition.waiting[waker] = None
        waker(partition)

    def _advanced(self, place: PartitionId, partition: Partition) -> None:
        """More of it is committed; a new leader waits for all that was there when it began."""
        role = partition.role
        end_offset = None if role is None else role.latest_offset
        if end_offset is None or partition.log.high_watermark < end_offset:
            return
        self._stop_waiting(place, partition)
        self._unread.append(partition)
        if len(self._unread) == 1:
            self._read()

    def _read(self) -> None:
        """Find the message ids of the first that waits for it; one at a time, so that many take no more memory."""
        partition = self._unread[0]
        place = _place(partition)
        stream = self._broker.streams.find_id(place.stream_id)
        bound = None if stream is None else self._capture.find(stream)
        leader_epoch = partition.leader_epoch

        def current() -> bool:
            return self._led.get(place) is partition and partition.leader_epoch == leader_epoch

        def say(message: str) -> None:
            if current():
                self._report(message)

        def done() -> None:
            self._unread.popleft()
            if current() and partition not in self._unread:
                self._known.add(place)
                self._ready(lambda: self._take([place]) if current() else None)
            if self._unread:
                self._broker.store.soon(self._read)

        if isinstance(self._capture, Capture) and isinstance(bound, BoundStream):
            recall(self._broker, self._capture, [(bound, partition)], say, done)
        else:
            done()  # no message ids count

    def _take(self, places: Collection[PartitionId]) -> None:
        """Messages that arrive from now on were published during this leadership."""
        for place in places:
            self._capture.lead(self._led[place], ready=True)
        self._end_gaps(places)

    def _begin_gap(self, place: PartitionId, since_ms: int, cause: str) -> None:
        if self._records_gaps:
            self._broker.gaps.begin_in(place, since_ms, cause)

    def _end_gaps(self, places: Collection[PartitionId]) -> None:
        if self._records_gaps:
            self._broker.gaps.end_in(places, self._broker.now_ms())

    # -- ceasing to -----------------------------------------------------------------------------------

    def _leave(self, stream: Stream, partition: Partition) -> None:
        place = _place(partition)
        if self._led.pop(place, None) is None:
            return
        now_ms = self._broker.now_ms()
        self._stop_waiting(place, partition)
        self._known.discard(place)
        self._capture.lead_no_more(partition)
        self._end_gaps([place])
        self._succession.left(place, now_ms)
        places = self._streams[stream]
        places.discard(place)
        if not places:
            del self._streams[stream]
            self._follow(stream)

    def _stop_waiting(self, place: PartitionId, partition: Partition) -> None:
        waker = self._wakers.pop(place, None)
        if waker is not None:
            partition.waiting.pop(waker, None)

    # -- the connection -----------------------------------------------------------------------------

    def listening(self) -> None:
        """There is a new connection: messages published from now on arrive."""
        self._deaf = ""
        self._take(list(self._known))

    def deaf(self, since_ms: int, cause: str) -> None:
        """Nothing comes any more."""
        self._deaf = cause
        for place in self._led:
            self._begin_gap(place, since_ms, cause)


def _place(partition: Partition) -> PartitionId:
    return PartitionId(partition.log.key.stream_id, partition.index)
