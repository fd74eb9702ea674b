"""Incremental fetch sessions (KIP-227): the consumer's partitions are kept, and responses have only changes. Pure.

A session belongs to no connection. There are `max.incremental.fetch.session.cache.slots` of them. A new one replaces a
session that was unused for two minutes, or an older and smaller one that has existed for two minutes, as in Apache
Kafka. The partitions of all sessions together are bounded too: if there is no room, the client gets session id 0, which
means no session.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionAnswer

__all__ = ["CACHED_PARTITION_BYTES", "FINAL_EPOCH", "NO_SESSION", "FetchSessions", "Session", "SessionFetch"]

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
CACHED_PARTITION_BYTES: Final = 400

_INITIAL_EPOCH: Final = 0
_LARGEST_EPOCH: Final = (1 << 31) - 1
_EVICTION_MS: Final = 120_000

Topic = str | UUID


class _Cached:
    """A partition of a session: the requested values, and those last sent to the client."""

    __slots__ = ("high_watermark", "start_offset", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.start_offset = -1

    def tell(self, answer: PartitionAnswer) -> bool:
        """Whether the response has to include the partition; afterwards the client knows its state."""
        changed = (
            answer.size > 0
            or answer.error_code != 0
            or answer.preferred_replica >= 0
            or answer.high_watermark != self.high_watermark
            or answer.start_offset != self.start_offset
        )
        # After an error the response includes the partition again, whatever its state.
        self.high_watermark = answer.high_watermark if answer.error_code == 0 else -1
        self.start_offset = answer.start_offset
        return changed


class Session:
    """A client's session. Partitions are in the order of the next response."""

    __slots__ = ("by_ids", "created_ms", "epoch", "id", "partitions", "used_ms")

    def __init__(self, session_id: int, now_ms: int, *, by_ids: bool) -> None:
        self.id = session_id
        self.epoch = _INITIAL_EPOCH + 1
        self.by_ids = by_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.partitions: dict[tuple[Topic, int], _Cached] = {}

    def topics(self) -> list[FetchTopic]:
        """The requested partitions; a topic may be repeated if others come in between."""
        topics: list[FetchTopic] = []
        for (topic, _), cached in self.partitions.items():
            if not topics or topics[-1].topic != topic:
                topics.append(FetchTopic(topic, []))
            topics[-1].partitions.append(cached.wanted)
        return topics

    def knows(self, topic: Topic, index: int, high_watermark: int, start_offset: int) -> bool:
        """Whether the client already has exactly this state: the usual, short case."""
        cached = self.partitions.get((topic, index))
        return cached is not None and cached.high_watermark == high_watermark and cached.start_offset == start_offset

    def tell(self, topic: Topic, answer: PartitionAnswer) -> bool:
        """Whether the response has to include it; an included partition goes to the end of the order."""
        key = topic, answer.partition
        cached = self.partitions.get(key)
        if cached is None or not cached.tell(answer):
            return False
        self.partitions[key] = self.partitions.pop(key)
        return True


class SessionFetch(NamedTuple):
    """One fetch: the requested partitions, or an error; the continued session, and its new epoch.

    `opens` if the client requests a new session with this fetch.
    """

    topics: list[FetchTopic]
    error: ErrorCode = ErrorCode.NONE
    session: Session | None = None
    epoch: int = FINAL_EPOCH
    opens: bool = False

    @property
    def session_id(self) -> int:
        """The session id in a response without partitions."""
        return NO_SESSION if self.session is None else self.session.id

    @property
    def overtaken(self) -> bool:
        """Whether another fetch of the same session came meanwhile."""
        return self.session is not None and self.session.epoch != self.epoch


class FetchSessions:
    """The sessions of a node's clients."""

    def __init__(self, slots: int, most_partitions: int, new_id: Callable[[], int]) -> None:
        """`new_id` gives numbers that cannot be guessed, from 1 on."""
        self._slots = slots
        self._most_partitions = most_partitions
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}  # those used longest ago first
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """The sessions, those used longest ago first."""
        return iter(self._sessions.values())

    def begin(self, request: FetchRequest, now_ms: int, *, by_ids: bool) -> SessionFetch:
        """A fetch has come."""
        if request.session_epoch in (_INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            return SessionFetch(request.topics, opens=request.session_epoch == _INITIAL_EPOCH)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionFetch([], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return SessionFetch([], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_ids != by_ids:
            return SessionFetch([], ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request)
        if not session.partitions or self.partitions > self._most_partitions:
            self._remove(session.id)
            if session.partitions:
                return SessionFetch([], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return SessionFetch(request.topics)
        session.used_ms = now_ms
        session.epoch = session.epoch + 1 if session.epoch < _LARGEST_EPOCH else _INITIAL_EPOCH + 1
        self._sessions[session.id] = self._sessions.pop(session.id)
        return SessionFetch(session.topics(), session=session, epoch=session.epoch)

    def _update(self, session: Session, request: FetchRequest) -> None:
        before = len(session.partitions)
        for topic, partitions in request.topics:
            for wanted in partitions:
                known = session.partitions.get((topic, wanted.partition))
                if known is None:
                    session.partitions[topic, wanted.partition] = _Cached(wanted)
                else:
                    known.wanted = wanted
        for topic, indexes in request.forgotten:
            for index in indexes:
                session.partitions.pop((topic, index), None)
        self.partitions += len(session.partitions) - before

    def open(self, topics: Iterable[FetchTopic], now_ms: int, *, by_ids: bool) -> Session | None:
        """A session with these partitions; None if there is no room, or nothing to keep."""
        wanted = {(topic, one.partition): one for topic, partitions in topics for one in partitions}
        if not wanted or not self._make_room(len(wanted), now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = Session(session_id, now_ms, by_ids=by_ids)
        session.partitions = {key: _Cached(one) for key, one in wanted.items()}
        self.partitions += len(wanted)
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if size > self._most_partitions or not self._slots:
            return False
        while len(self._sessions) >= self._slots or self.partitions + size > self._most_partitions:
            oldest = next(iter(self))
            if now_ms - oldest.used_ms > _EVICTION_MS:
                self._remove(oldest.id)
                continue
            evictable = [one for one in self if now_ms - one.created_ms > _EVICTION_MS]
            smallest = min(evictable, key=lambda one: (len(one.partitions), one.id), default=None)
            if smallest is None or len(smallest.partitions) >= size:
                return False
            self._remove(smallest.id)
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)
