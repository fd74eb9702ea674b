"""From messages to records to acknowledgements.

The messages of one chunk are grouped into one batch per partition. A batch is appended like one of the leader's own,
and replies are sent once it is acknowledged. Bytes of batches in flight are counted, so that the door can stop reading.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import (
    BatchInvalid,
    BatchTooLarge,
    DuplicateTableFull,
    DuramenError,
    ExpectedStreamDiffers,
    NameNotResolved,
    OffsetNotAvailable,
    UnsupportedFeature,
)
from duramen.base.principal import ANONYMOUS
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.builder import RECORD_OVERHEAD_BYTES, encode_headers
from duramen.codec.nats import Message, encode_pub, parse_header_block
from duramen.codec.partitioner import partition_of
from duramen.doors.nats.actions import PUBLISH
from duramen.doors.nats.answers import Answers
from duramen.doors.nats.bound import BoundStream, MessageBatch, StoredMessageId
from duramen.doors.nats.duplicates import Allowance, fingerprint
from duramen.doors.nats.headers import SUBJECT_HEADER, Headers, special, text
from duramen.doors.nats.subjects import SubjectTree
from duramen.service.admission import Admitted, Service
from duramen.service.broker import Broker

__all__ = ["Capture"]

_INDEX_BYTES: Final = 4
_ROUTES_BYTES: Final = 4 * 1024 * 1024
_ROUTE_OVERHEAD_BYTES: Final = 400  # what a known subject takes beside its bytes, and again for each of its streams
_MESSAGE_OVERHEAD_BYTES: Final = 200  # what a message under way takes beside its bytes

Way = tuple[BoundStream, Partition, bytes]
"""A stream that a subject reaches: the partition of messages without a key, and the headers of plain ones."""


class SubjectRoute(NamedTuple):
    """The partitions for messages of a subject.

    `refused` ones are led here and refuse messages, with the reason.

    `refused` are led here, and messages for them are not taken, with the reason.
    """

    all: tuple[Way, ...]
    taken: tuple[Way, ...]
    early: tuple[Way, ...]
    refused: tuple[tuple[BoundStream, DuramenError], ...] = ()


class Capture:
    """Bound streams, and the messages accepted for them that are not acknowledged yet."""

    def __init__(
        self,
        broker: Broker,
        service: Service,
        *,
        fingerprint_key: bytes,
        duplicate_entries: int,
        limit_bytes: int,
        soon: Callable[[Callable[[], None]], object],
        send: Callable[[bytes], None],
        on_room: Callable[[], None],
    ) -> None:
        """`send` is handed the answers of one sync in one piece; `on_room` is called when `full` may have ended."""
        self._broker = broker
        self._service = service
        self.principal = ANONYMOUS  # of all publishers: NATS does not say who they are
        self._key = fingerprint_key
        self._allowance = Allowance(duplicate_entries)
        self._limit_bytes = limit_bytes
        self._message_bytes = limit_bytes // 2  # while one is taken there are several copies of it
        self.largest_message = 0  # the most bytes of one that any stream could take
        self._answers = Answers(soon, send)
        self.flush = self._answers.flush
        self._on_room = on_room
        # Those that are led, and whether they are ready. None: the node is alone, and takes whatever comes.
        self._led: dict[Partition, bool] | None = None if broker.membership.first_role is None else {}
        self._tree: SubjectTree[BoundStream] = SubjectTree()
        self._bound: dict[Stream, BoundStream] = {}
        self._remembering: dict[BoundStream, None] = {}  # those with message ids
        self._routes: dict[bytes, SubjectRoute] = {}
        self._routes_bytes = 0
        self._open: dict[Partition, MessageBatch] = {}
        self._under_way: dict[MessageBatch, None] = {}
        self._held_bytes = 0
        self.full = False  # whether what is under way takes all the memory there is for it
        self._gauge = broker.metrics.counter("duramen_nats_inflight_bytes")
        self.on_idle: Callable[[], None] | None = None
        self._held: list[Message] | None = None  # what came since the streams of a subject are being resolved
        self._held_ms = 0
        self.on_resolved: Callable[[], None] = lambda: None
        """Called when `waits` has ended."""

    # -- bindings -----------------------------------------------------------------------------------

    def bind(self, stream: Stream) -> BoundStream | None:
        """A stream was created, changed or deleted. Returns its bound form, if it is bound to subjects."""
        bound = self._bound.get(stream)
        if bound is None and not stream.subjects:
            return None
        self._forget_routes()
        if stream.deleted:
            if bound is not None:
                del self._bound[stream]
                self._remembering.pop(bound, None)
                for subject in bound.subjects:
                    self._tree.release(subject, bound)
                bound.seen.clear()
                bound.release()
            bound = None
        elif bound is not None:
            bound.update()
        else:
            bound = self._bound[stream] = BoundStream(stream, self._allowance, self._broker.metrics)
            for subject in bound.subjects:
                self._tree.bind(subject, bound)
            self.largest_message = max(self.largest_message, min(bound.room, self._message_bytes))
            return bound
        largest = max((bound.room for bound in self._bound.values()), default=0)
        self.largest_message = min(largest, self._message_bytes)
        return bound

    def find(self, stream: Stream) -> BoundStream | None:
        """The bound form of a stream; None if it is not bound."""
        return self._bound.get(stream)

    def lead(self, partition: Partition, *, ready: bool) -> None:
        """A member of a cluster leads a partition; once it is `ready`, messages for it are taken."""
        if self._led is not None:
            self._led[partition] = ready
            self._forget_routes()

    def lead_no_more(self, partition: Partition) -> None:
        """From now on another node stores its messages: they are ignored here.

        The next leader finds the ids in the log, as far as it is not truncated.
        """
        if self._led is not None:
            self._led.pop(partition, None)
            self._forget_routes()
            for bound in self._remembering:
                if bound.appended:
                    bound.release(partition)

    def _readiness(self, partition: Partition) -> bool | None:
        """Whether messages for a partition are taken yet; None: they are another's."""
        return True if self._led is None else self._led.get(partition)

    def streams(self) -> Iterable[BoundStream]:
        """Every bound stream."""
        return self._bound.values()

    def fingerprint(self, message_id: bytes, partition: Partition) -> int:
        """The fingerprint of a Nats-Msg-Id in the tables.

        In a cluster ids belong to a partition, because other nodes lead the others.
        """
        key = self._key if self._led is None else self._key + partition.index.to_bytes(_INDEX_BYTES)
        return fingerprint(key, message_id)

    def purge(self, share: int) -> None:
        """Forget ids that are older than their stream's window, in a `share`-th of each table."""
        now_ms = self._broker.now_ms()
        for bound in list(self._remembering):
            bound.purge(now_ms - bound.window_ms, share)
            if not (len(bound.seen) or bound.pending or bound.appended):
                del self._remembering[bound]

    def remember(self, bound: BoundStream) -> None:
        """The stream has message ids that are to be forgotten some time."""
        self._remembering[bound] = None

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._routes_bytes = 0

    def _route(self, subject: bytes) -> SubjectRoute | None:
        """The partitions for messages of a subject; None while unknown, and `waits` until then."""
        matched = self._tree.match(subject)
        known: list[SubjectRoute] = []

        def judged(verdict: Admitted | DuramenError) -> None:
            known.append(self._judged(subject, matched, verdict))
            if self._held is not None:
                self._resolved(subject, known[0])

        names = [bound.name for bound in matched]
        if self._service.admit(self.principal, PUBLISH, names, judged) is None:
            return known[0]
        self._held, self._held_ms = [], self._broker.now_ms()
        return None

    def _judged(self, subject: bytes, matched: Sequence[BoundStream], verdict: Admitted | DuramenError) -> SubjectRoute:
        headers = encode_headers([(SUBJECT_HEADER, subject)])
        ways: list[Way] = []
        refused: list[tuple[BoundStream, DuramenError]] = []
        for bound in matched:
            if bound.stream.deleted:
                continue
            partition = bound.stream.partitions[partition_of(subject, len(bound.stream.partitions))]
            error = verdict if isinstance(verdict, DuramenError) else None
            if isinstance(verdict, Admitted) and verdict.topics.find(bound.name) is None:
                error = verdict.topics.error(bound.name)
            if error is None:
                ways.append((bound, partition, headers))
            elif self._readiness(partition) is not None:
                refused.append((bound, error))
        route = SubjectRoute(
            tuple(ways),
            tuple(way for way in ways if self._readiness(way[1])),
            tuple(way for way in ways if self._readiness(way[1]) is False),
            tuple(refused),
        )
        if any(isinstance(error, NameNotResolved) for _, error in refused):
            return route  # of these messages: the next may fare better
        size = (_ROUTE_OVERHEAD_BYTES + len(subject)) * (1 + len(matched))
        if self._routes_bytes + size > _ROUTES_BYTES:
            self._forget_routes()
        self._routes[subject] = route
        self._routes_bytes += size
        return route

    def _resolved(self, subject: bytes, route: SubjectRoute) -> None:
        """The streams of a subject are known: process the messages that arrived meanwhile."""
        held, self._held = self._held or [], None
        self._take(held, {**self._routes, subject: route} if subject not in self._routes else self._routes)
        if self._held is None:
            self.on_resolved()

    # -- taking -------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way and self._held is None

    @property
    def waits(self) -> bool:
        """Whether messages wait for the streams of a subject to be resolved: no more of them are wanted."""
        return self._held is not None

    def oldest_ms(self) -> int | None:
        """The arrival time of the oldest message in progress; None if there is none."""
        if self._under_way:
            return next(iter(self._under_way)).received_ms
        return None if self._held is None else self._held_ms

    def take(self, messages: Sequence[Message]) -> None:
        """Take in the messages of one chunk."""
        if self._held is None:
            self._take(messages, self._routes)
        else:
            self._held += messages

    def _take(self, messages: Sequence[Message], routes: Mapping[bytes, SubjectRoute]) -> None:
        now_ms = self._broker.now_ms()
        open_ = self._open
        left = iter(messages)
        for subject, reply, block, payload in left:
            route = routes.get(subject)
            if route is None:
                route = self._route(subject)
                if route is None:
                    self._held = [(subject, reply, block, payload), *left]
                    break
            if block is not None:
                self._take_headed(route.all, subject, reply, parse_header_block(block), payload or b"", now_ms)
                for bound, error in route.refused:
                    self._refuse(bound, [reply if bound.acks else None], error)
                continue
            for bound, partition, headers in route.taken:
                taken = open_.get(partition)
                answer_to = reply if bound.acks else None
                if (
                    taken is not None
                    and payload is not None
                    and not bound.compacted
                    and taken.builder.size + len(payload) + len(headers) + RECORD_OVERHEAD_BYTES <= bound.room
                ):
                    taken.builder.add(None, payload, headers)
                    taken.replies.append(answer_to)
                else:
                    self._take_one(bound, partition, answer_to, None, payload, headers, now_ms)
            for bound, error in route.refused:
                self._refuse(bound, [reply if bound.acks else None], error)
            for bound, partition, _ in route.early:
                self._refuse_early(bound, partition, reply if bound.acks else None)
        self._open = {}
        for taken in open_.values():
            self._append(taken)

    def _take_headed(
        self, ways: tuple[Way, ...], subject: bytes, reply: bytes | None, headers: Headers, payload: bytes, now_ms: int
    ) -> None:
        key, message_id, expected, not_done = special(headers)
        encoded = encode_headers([*((text(name), value) for name, value in headers), (SUBJECT_HEADER, subject)])
        answering = [bound for bound, _, _ in ways if bound.acks] if reply is not None else []
        error: DuramenError | None = None
        if not_done is not None:
            error = UnsupportedFeature(f"the header {not_done.decode(errors='replace')} is not supported")
        elif expected is not None and all(bound.name.encode() != expected for bound in answering):
            error = ExpectedStreamDiffers(f"the subject is bound to {', '.join(bound.name for bound, _, _ in ways)}")
        for bound, keyless, _ in ways:
            partition = keyless
            if key is not None:
                partitions = bound.stream.partitions
                partition = partitions[partition_of(key, len(partitions))]
            ready = self._readiness(partition)
            if ready is None:
                continue
            # Who is not to answer does as it is told by nobody: it stores.
            answer_to = reply if bound in answering else None
            if error is not None and answer_to is not None:
                self._refuse(bound, [answer_to if bound is answering[0] else None], error)
                continue
            if expected is not None and bound.name.encode() != expected:
                answer_to = None
            if not ready:
                self._refuse_early(bound, partition, answer_to)
                continue
            self._take_one(bound, partition, answer_to, key, payload, encoded, now_ms, message_id)

    def _take_one(
        self,
        bound: BoundStream,
        partition: Partition,
        reply: bytes | None,
        key: bytes | None,
        payload: bytes | None,
        headers: bytes,
        now_ms: int,
        message_id: bytes = b"",
    ) -> None:
        """Add a message to the partition's batch, after every check; `reply` is its reply subject, if any."""
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(payload or b"") + len(headers)
        if payload is None or size > bound.room:
            room = min(bound.room, self._message_bytes)
            error = BatchTooLarge(f"stream {bound.name} takes {room} bytes of payload, headers and subject")
            self._refuse(bound, [reply], error)
            return
        if bound.compacted and key is None:
            keyless = BatchInvalid(f"stream {bound.name} is compacted: every message needs the header Duramen-Key")
            self._refuse(bound, [reply], keyless)
            return
        print_ = self.fingerprint(message_id, partition) if message_id and bound.window_ms else None
        if print_ is not None:
            self.remember(bound)
            if self._repeats(bound, print_, reply, now_ms):
                return
            if not bound.seen.reserve():
                self._refuse(bound, [reply], DuplicateTableFull("too many Nats-Msg-Ids within duplicate.window.ms"))
                return
        taken = self._open.get(partition)
        if taken is not None and taken.builder.size + size > bound.room:
            self._append(self._open.pop(partition))
            taken = None
        if taken is None:
            taken = self._open[partition] = MessageBatch(bound, partition, now_ms)
        if print_ is not None:
            taken.ids.append((taken.builder.count, print_))
            bound.pending[print_] = (taken, taken.builder.count)
        taken.builder.add(key, payload, headers)
        taken.replies.append(reply)

    def _repeats(self, bound: BoundStream, print_: int, reply: bytes | None, now_ms: int) -> bool:
        """Whether a message with that id is stored already; then it is acknowledged once the first one is synced."""
        bound.settle(print_)
        known = bound.seen.find(print_, now_ms - bound.window_ms)
        first, appended = bound.pending.get(print_), bound.appended.get(print_)
        if known is None and first is None and appended is None:
            return False
        bound.duplicates.value += 1
        if reply is None:
            return True
        if known is not None:
            partition, offset = known
            bound.acked.value += 1
            self._answers.add(encode_pub(reply, bound.ack_encoders[partition].encode_duplicate(offset)))
        elif first is not None:
            taken, index = first
            taken.repeated.append((index, reply))
            if taken in self._under_way:
                size = _MESSAGE_OVERHEAD_BYTES + len(reply)
                taken.size += size
                self._hold(size)
        elif appended is not None:
            self._await(bound, print_, appended, reply)
        return True

    def _await(self, bound: BoundStream, print_: int, appended: StoredMessageId, reply: bytes) -> None:
        """Answer a repetition once the record that was appended is committed, or with why it is not."""
        size = _MESSAGE_OVERHEAD_BYTES + len(reply)

        def settled(_: int, error: DuramenError | None) -> None:
            self._hold(-size)
            if error is not None:
                self._refuse(bound, [reply], error)
                return
            bound.settle(print_)
            bound.acked.value += 1
            ack = bound.ack_encoders[appended.partition.index].encode_duplicate(appended.offset)
            self._answers.add(encode_pub(reply, ack))

        self._hold(size)
        try:
            role = appended.partition.role
            if role is not None:
                role.accept(settled, all_replicas=True)(appended.offset, None)
        except DuramenError as error:
            settled(-1, error)

    # -- appending and answering --------------------------------------------------------------------

    def _append(self, taken: MessageBatch) -> None:
        count = taken.builder.count
        taken.size = taken.builder.size + (count + len(taken.repeated)) * _MESSAGE_OVERHEAD_BYTES + taken.reply_bytes()
        taken.bound.messages.value += count
        self._under_way[taken] = None
        self._hold(taken.size)
        taken.partition.append(taken.builder.seal(taken.received_ms), partial(self._appended, taken))

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._gauge.value = self._held_bytes
        if self._held_bytes >= self._limit_bytes:
            self.full = True
        elif self.full and self._held_bytes <= self._limit_bytes // 2:
            self.full = False
            self._on_room()

    def _appended(self, taken: MessageBatch, base_offset: int, error: DuramenError | None) -> None:
        del self._under_way[taken]
        bound = taken.bound
        for index, print_ in taken.ids:
            del bound.pending[print_]
            if error is None and not bound.stream.deleted:
                bound.seen.add(print_, taken.partition.index, base_offset + index, taken.received_ms)
            elif base_offset >= 0 and not bound.stream.deleted and self._readiness(taken.partition):
                bound.appended[print_] = StoredMessageId(taken.partition, base_offset + index, taken.received_ms)
            else:
                bound.seen.give_back()
        if error is None:
            answers = taken.answers(base_offset)
            bound.acked.value += len(answers)
            if answers:
                self._answers.add(b"".join(answers))
        else:
            self._refuse(bound, [*taken.replies, *(reply for _, reply in taken.repeated)], error)
        self._hold(-taken.size)
        if self.on_idle is not None and not self._under_way:
            self.on_idle()

    def _refuse_early(self, bound: BoundStream, partition: Partition, reply: bytes | None) -> None:
        known = f"this node leads partition {partition.index} and does not know yet what is committed of it"
        self._refuse(bound, [reply], OffsetNotAvailable(known))

    def _refuse(self, bound: BoundStream, replies: Sequence[bytes | None], error: DuramenError) -> None:
        bound.count_refused(error, len(replies))
        self._answers.refuse(bound.name, replies, error)
