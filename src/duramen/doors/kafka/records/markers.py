"""DescribeProducers with Duramen's fields: the markers of partitions from an offset on, and open transactions."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid, StorageFailed
from duramen.broker.partition import LATEST
from duramen.codec.kafka.schema import Message
from duramen.coordinators.transaction.markers import MarkedTransactions, find_marked
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.metadata.decisions import check_name

__all__ = ["describe_marked"]

_MOST: Final = 20_000  # markers in an answer


def describe_marked(context: Context, exchange: Exchange, topics: Sequence[Message]) -> None:
    """Answer for one partition after the other; `marked_from` has an offset for each."""
    _Describing(context, exchange, topics).go_on()


class _Describing:
    def __init__(self, context: Context, exchange: Exchange, topics: Sequence[Message]) -> None:
        self._broker = context.broker
        self._topics = exchange.admitted.topics
        self._exchange = exchange
        self._room = context.response_budget()
        self._answers: list[Message] = []
        self._left: deque[tuple[Message, str, int, int | None]] = deque()
        for topic in topics:
            answer: Message = {"name": topic["name"], "partitions": []}
            self._answers.append(answer)
            offsets = dict(enumerate(topic["marked_from"]))
            self._left += [
                (answer, topic["name"], index, offsets.get(at)) for at, index in enumerate(topic["partition_indexes"])
            ]
        self._most = max(1, _MOST // max(1, len(self._left)))
        self._running = False

    def go_on(self) -> None:
        """Process partitions until one has to be awaited; then respond."""
        self._running = True
        while self._left:
            _, name, index, offset = self._left[0]
            left = len(self._left)
            try:
                self._find(name, index, offset)
            except DuramenError as error:
                self._take(error)
            if len(self._left) == left:
                self._running = False
                return
        self._exchange.reply({"topics": self._answers})

    def _find(self, name: str, index: int, offset: int | None) -> None:
        self._room.check()
        check_name(name)
        if offset is None:
            raise RequestInvalid("marked_from has an offset for each of the partitions")
        light = self._topics.light(name)
        if light is not None and index == 0:
            light.find_offset(LATEST, self._light_found)
            return
        partition = self._topics.get(name).partition(index)
        find_marked(self._broker.store, partition, offset, self._most, self._found)

    def _light_found(self, end: int, _: int, error: DuramenError | OSError | None) -> None:
        """A light topic has no transactions."""
        if error is None:
            self._found(MarkedTransactions(end, end, end, [], []))
        else:
            self._found(error if isinstance(error, DuramenError) else StorageFailed(str(error)))

    def _found(self, found: MarkedTransactions | DuramenError) -> None:
        self._take(found)
        if not self._running:
            self.go_on()

    def _take(self, found: MarkedTransactions | DuramenError) -> None:
        answer, _, index, _ = self._left.popleft()
        if isinstance(found, MarkedTransactions):
            try:
                self._room.take([found.open, found.ended])
            except RequestInvalid as error:
                found = error
        partition: Message = {"partition_index": index}
        if isinstance(found, MarkedTransactions):
            partition["marked"] = found._asdict() | {
                "open": [{"producer_id": producer, "first_offset": first} for producer, first in found.open],
                "ended": [one._asdict() for one in found.ended],
            }
        else:
            partition |= {"error_code": error_code(found), "error_message": str(found)}
        answer["partitions"].append(partition)
