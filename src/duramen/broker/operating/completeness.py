"""How much of a partition without a leader each live replica has: asked before an unclean election chooses one.

What nodes say begins with a byte that no other request or answer begins with; MessagePack follows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer, Clock
from duramen.broker.operating.survey import Kept, Survey
from duramen.broker.replicas.opening import takeovers_of
from duramen.broker.standing import Standing
from duramen.broker.streams import Streams
from duramen.controller.partitions import PartitionId, without

__all__ = ["Completeness", "is_about_completeness"]

_MARK: Final = b"\3"  # a number to MessagePack, where others have arrays
_ANSWER_MS: Final = 3_000
_NO_EPOCH: Final = -1


class _Wanted(msgspec.Struct, frozen=True, array_like=True):
    stream_id: bytes
    partition: int


Done = Callable[[list[Survey]], None]

_encoder: Final = msgspec.msgpack.Encoder()
_wishes: Final = msgspec.msgpack.Decoder(list[_Wanted])
_answers: Final = msgspec.msgpack.Decoder(list[Kept | None])


def is_about_completeness(body: Buffer) -> bool:
    """Whether a request of another node is for `Completeness.asked`."""
    return bytes(body[:1]) == _MARK


class Completeness:
    """Asks the replicas of partitions what they have."""

    def __init__(
        self, node_id: int, standing: Callable[[], Standing], streams: Streams, clock: Clock, deadlines: Deadlines
    ) -> None:
        self._node_id = node_id
        self._standing = standing
        self._streams = streams
        self._clock = clock
        self._deadlines = deadlines

    def survey(self, places: Sequence[PartitionId], done: Done) -> None:
        """Tell `done` of each partition, in their order, what its replicas have; it may be called at once."""
        standing = self._standing()
        live = {node.id for node in standing.nodes if not node.draining} or {self._node_id}  # it is alone
        by_node: dict[int, list[int]] = {}
        surveys = []
        for at, place in enumerate(places):
            replicas = standing.partition(place).replicas
            surveys.append(Survey(place, {}, without(replicas, live)))
            for node_id in replicas:
                if node_id in live:
                    by_node.setdefault(node_id, []).append(at)
        gathering = _Gathering(surveys, by_node, done)
        gathering.over = self._deadlines.at(self._clock.monotonic_ms() + _ANSWER_MS, gathering.end).cancel
        for node_id, ats in by_node.items():
            wanted = [_Wanted(places[at].stream_id.bytes, places[at].partition) for at in ats]
            if node_id == self._node_id:
                gathering.put(node_id, [self._look(wish) for wish in wanted])
            elif not standing.ask_node(
                node_id, _MARK + _encoder.encode(wanted), partial(_answered, gathering, node_id, len(wanted))
            ):
                gathering.put(node_id, None)
        gathering.asked()

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks what replicas here have. Raises RequestInvalid."""
        try:
            wanted = _wishes.decode(body[len(_MARK) :])
        except (msgspec.MsgspecError, ValueError) as error:
            raise RequestInvalid(f"a request about replicas cannot be read: {error}") from None
        answer(_encoder.encode([self._look(wish) for wish in wanted]))

    def _look(self, wish: _Wanted) -> Kept | None:
        stream = self._streams.find_id(UUID(bytes=wish.stream_id)) if len(wish.stream_id) == 16 else None
        if stream is None or not 0 <= wish.partition < len(stream.partitions):
            return None
        log = stream.partitions[wish.partition].log
        takeovers = takeovers_of(log)
        epoch = takeovers[-1].epoch if takeovers else _NO_EPOCH
        return Kept(epoch, log.end_offset, log.high_watermark)


class _Gathering:
    """What nodes have answered so far; `done` is called once, when all have, or when it is too late."""

    def __init__(self, surveys: list[Survey], by_node: dict[int, list[int]], done: Done) -> None:
        self._surveys = surveys
        self._waiting = dict(by_node)
        self._silent: list[list[int]] = [list(survey.silent) for survey in surveys]
        self._all_asked = False
        self._done: Done | None = done
        self.over: Callable[[], None] = lambda: None

    def put(self, node_id: int, found: Sequence[Kept | None] | None) -> None:
        """What a node has; None: nothing was heard of it."""
        for at, kept in zip(ats := self._waiting.pop(node_id, []), found or [None] * len(ats), strict=True):
            if kept is None:
                self._silent[at].append(node_id)
            else:
                self._surveys[at].kept[node_id] = kept
        if self._all_asked and not self._waiting:
            self.end()

    def asked(self) -> None:
        """All have been asked."""
        self._all_asked = True
        if not self._waiting:
            self.end()

    def end(self) -> None:
        """Answer with what there is."""
        done, self._done = self._done, None
        if done is None:
            return
        self.over()
        for node_id in list(self._waiting):
            self.put(node_id, None)
        done([one._replace(silent=sorted(silent)) for one, silent in zip(self._surveys, self._silent, strict=True)])


def _answered(gathering: _Gathering, node_id: int, count: int, body: Buffer | None) -> None:
    try:
        found = _answers.decode(body) if body else None
    except (msgspec.MsgspecError, ValueError):
        found = None
    gathering.put(node_id, found if found is not None and len(found) == count else None)
