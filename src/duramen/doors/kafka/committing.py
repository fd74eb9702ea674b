"""Offsets to commit, of OffsetCommit and TxnOffsetCommit: which can be, and the answer for each partition."""

from collections.abc import Callable, Sequence

from duramen.base.errors import DuramenError
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.exchange import Exchange
from duramen.groups.records import CommittedOffset, OffsetKey

__all__ = ["Commits"]


class Commits:
    """What one request wants committed: `offsets` are those of partitions that there are."""

    def __init__(self, context: Context, request: Message) -> None:
        self.offsets: list[tuple[OffsetKey, CommittedOffset]] = []
        self._topics: list[Message] = []
        self._stored: list[Message] = []
        broker, group_id = context.broker, request["group_id"]
        now_ms = broker.now_ms()
        for topic in request["topics"]:
            stream = broker.streams.find(topic["name"])
            answers = []
            for wanted in topic["partitions"]:
                index = wanted["partition_index"]
                answer: Message = {"partition_index": index, "error_code": ErrorCode.NONE}
                answers.append(answer)
                if stream is None or not 0 <= index < len(stream.partitions):
                    answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                committed = CommittedOffset(
                    wanted["committed_offset"], wanted["committed_leader_epoch"], wanted["committed_metadata"] or "",
                    now_ms,
                )  # fmt: skip
                self.offsets.append((OffsetKey(group_id, topic["name"], index), committed))
                self._stored.append(answer)
            self._topics.append({"name": topic["name"], "partitions": answers})

    def answer(
        self,
        exchange: Exchange,
        results: Sequence[DuramenError | None] | DuramenError,
        code: Callable[[DuramenError | None], ErrorCode],
    ) -> None:
        """Reply with what became of each of `offsets`, or with what kept all of them from being stored."""
        if isinstance(results, DuramenError):
            results = [results] * len(self._stored)
        for answer, result in zip(self._stored, results, strict=True):
            answer["error_code"] = code(result)
        exchange.reply({"topics": self._topics})
