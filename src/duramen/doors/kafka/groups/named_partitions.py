"""The partitions named in a request about a group's offsets: the existing ones, and the response for each.

OffsetCommit, TxnOffsetCommit and OffsetDelete name them in the same way.
"""

from collections.abc import Callable, Iterator, Sequence

from duramen.base.errors import CoordinatorLoading, DuramenError, NameNotResolved, StreamNotFound
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.coordinators.group.topics import LASTING
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.service.light_topics import LastingId
from duramen.service.resolve import ResolvedTopics

__all__ = ["Named", "stored_as", "unresolved", "used_before"]


def used_before(needs: ApiNeeds) -> Iterator[LastingId]:
    """The topics that had the names of a request when a group used them last."""
    topics = needs.context.broker.groups.topics
    for topic in needs.request["topics"]:
        before = LastingId.of_stored(topics.used(topic["name"]) or "")
        if before is not None:
            yield before


def stored_as(topics: ResolvedTopics, name: str) -> str:
    """The key name of a topic's offsets."""
    light = topics.light(name)
    if light is not None:
        return light.stored_as
    return "" if name.startswith(LASTING) else name  # offsets under that name belong to a topic with another name


def unresolved(error: DuramenError) -> DuramenError:
    """The response for a name: if it was not resolved in time the client retries."""
    if isinstance(error, NameNotResolved):
        return CoordinatorLoading(str(error))
    return error


class Named:
    """The partitions in a request: `there` are the existing ones, with their fields."""

    def __init__(
        self, context: Context, request: Message, named: ResolvedTopics, *, keeps_renamed: bool = False
    ) -> None:
        """With `keeps_renamed` a renamed topic is found under the name that a group has used."""
        self.there: list[tuple[OffsetKey, Message]] = []
        self._now_ms = context.broker.now_ms()
        self._topics: list[Message] = []
        self._answers: list[Message] = []
        places, group_id, topics = set[tuple[str, int]](), request["group_id"], context.broker.groups.topics
        for topic in request["topics"]:
            count, stored = named.partitions(topic["name"]), stored_as(named, topic["name"])
            if count is not None:
                topics.use(topic["name"], stored)
            elif keeps_renamed and isinstance(named.error(topic["name"]), StreamNotFound):
                # A group that has read the topic under this name commits how far it came, although it has another now.
                before = LastingId.of_stored(topics.used(topic["name"]) or "")
                renamed = None if before is None else named.light(before)
                count, stored = (None, stored) if renamed is None else (1, renamed.stored_as)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if count is None:
                missing = error_code(unresolved(named.error(topic["name"])))
            answers = []
            for wanted in topic["partitions"]:
                index = wanted["partition_index"]
                answer: Message = {"partition_index": index, "error_code": ErrorCode.NONE}
                answers.append(answer)
                if count is None or not 0 <= index < count:
                    answer["error_code"] = missing
                    continue
                self.there.append((OffsetKey(group_id, stored, index), wanted))
                places.add((topic["name"], index))
                self._answers.append(answer)
            self._topics.append({"name": topic["name"], "partitions": answers})
        self._places = frozenset(places)

    @property
    def places(self) -> frozenset[tuple[str, int]]:
        """The partitions that there are, by the names that the request has."""
        return self._places

    @property
    def keys(self) -> list[OffsetKey]:
        """The partitions that there are."""
        return [key for key, _ in self.there]

    @property
    def offsets(self) -> list[tuple[OffsetKey, CommittedOffset]]:
        """The offsets to commit for each of them."""
        return [
            (
                key,
                CommittedOffset(
                    wanted["committed_offset"], wanted["committed_leader_epoch"], wanted["committed_metadata"] or "",
                    self._now_ms,
                ),
            )
            for key, wanted in self.there
        ]  # fmt: skip

    def answered(
        self, results: Sequence[DuramenError | None] | DuramenError, code: Callable[[DuramenError | None], ErrorCode]
    ) -> list[Message]:
        """The response for every named topic, with the result of each of `there`, or one error for all."""
        if isinstance(results, DuramenError):
            results = [results] * len(self._answers)
        for answer, result in zip(self._answers, results, strict=True):
            answer["error_code"] = code(result)
        return self._topics
