"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError, NameNotResolved, RequestInvalid
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.coordinators.group.coordinator import CommitMember, Coordinator
from duramen.doors.kafka.groups.named_partitions import Named, stored_as, unresolved
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.response_size import ResponseBudget
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.service.admission import Admitted
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.light_topics import LastingId
from duramen.service.resolve import ResolvedTopics, TopicKey

__all__ = ["fetched_groups", "fetched_topics", "handle_offset_commit", "handle_offset_delete", "handle_offset_fetch"]

_DESCRIBE_GROUP: Final = Access(Operation.DESCRIBE, ResourceType.GROUP)
_DESCRIBE_TOPIC: Final = Access(Operation.DESCRIBE, ResourceType.TOPIC)

_SAYS_WHY: Final = 2  # since this version an answer has a place for an error
_SEVERAL_GROUPS: Final = 8
_KNOWS_EPOCHS: Final = 9  # since this version both speak of member epochs


def handle_offset_commit(context: Context, exchange: Exchange) -> None:
    """Store offsets; answered once they are durable."""
    request = exchange.message()
    broker = context.broker
    named = Named(context, request, exchange.admitted.topics, keeps_renamed=True)

    def done(results: Sequence[DuramenError | None] | DuramenError) -> None:
        exchange.reply({"topics": named.answered(results, group_error_code)})

    member = CommitMember(
        request["member_id"], request["group_instance_id"], request["generation_id_or_member_epoch"],
        exchange.version >= _KNOWS_EPOCHS, named.places,
    )  # fmt: skip

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
        else:
            broker.groups.commit(request["group_id"], member, named.offsets, done)

    broker.internal_streams.ensure_offsets(ready)


def _fetched(needs: ApiNeeds) -> Sequence[Message]:
    """The requested offsets, group by group."""
    several: Sequence[Message] = needs.request["groups"]
    return several if needs.exchange.version >= _SEVERAL_GROUPS else (needs.request,)


def fetched_groups(needs: ApiNeeds) -> Sequence[str]:
    """The groups in the request."""
    return [group["group_id"] for group in _fetched(needs)]


def fetched_topics(needs: ApiNeeds) -> Iterator[TopicKey]:
    """The topics in the request; if it requests all, those with committed offsets."""
    for group in _fetched(needs):
        if group["topics"] is None:
            groups = needs.context.broker.groups
            stored = {key.topic: None for key, _ in groups.all_committed(group["group_id"])}
            yield from (LastingId.of_stored(one) or one for one in stored)
        else:
            yield from (topic["name"] for topic in group["topics"])


def handle_offset_fetch(context: Context, exchange: Exchange) -> None:
    """The committed offsets of groups; a member with an outdated epoch gets an error."""
    request = exchange.message()
    stable = request["require_stable"] is True
    scope = _OffsetScope(context.broker.groups, context.response_budget(), exchange.admitted, stable=stable)
    if exchange.version >= _SEVERAL_GROUPS:
        exchange.reply({"groups": [_committed_of(scope, group) for group in request["groups"]]})
        return
    try:
        scope.admitted.check(_DESCRIBE_GROUP, request["group_id"])
        scope.groups.check_coordinated(request["group_id"])
        exchange.reply({"topics": _committed(scope, request["group_id"], request["topics"])})
    except RequestInvalid as error:
        if exchange.version < _SAYS_WHY:
            raise
        exchange.reply({"topics": (), "error_code": group_error_code(error)})
    except DuramenError as error:
        topics = _refused(request["topics"], group_error_code(error)) if exchange.version < _SAYS_WHY else ()
        exchange.reply({"topics": topics, "error_code": group_error_code(error)})


def _refused(topics: Sequence[Message] | None, code: ErrorCode) -> list[Message]:
    """A response with an error for each partition."""
    return [
        {
            "name": topic["name"],
            "partitions": [
                {**_committed_offset(index, None), "error_code": code} for index in topic["partition_indexes"]
            ],
        }
        for topic in topics or ()
    ]


class _OffsetScope(NamedTuple):
    """With `stable`, an offset that a pending transaction may change is not returned (KIP-447)."""

    groups: Coordinator
    room: ResponseBudget
    admitted: Admitted
    stable: bool


def _committed_of(scope: _OffsetScope, group: Message) -> Message:
    group_id = group["group_id"]
    try:
        scope.admitted.check(_DESCRIBE_GROUP, group_id)
        scope.groups.check_fetch(group_id, group["member_id"], group["member_epoch"])
        return {"group_id": group_id, "topics": _committed(scope, group_id, group["topics"])}
    except DuramenError as error:
        return {"group_id": group_id, "error_code": group_error_code(error)}


def _committed(scope: _OffsetScope, group_id: str, topics: Sequence[Message] | None) -> list[Message]:
    """Raises RequestInvalid if the request is too large."""
    groups = scope.groups
    scope.room.check()
    unstable = groups.unstable_of(group_id) if scope.stable else frozenset()

    def answer(key: OffsetKey, committed: CommittedOffset | None) -> Message:
        if key in unstable:
            one = {**_committed_offset(key.partition, None), "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT}
        else:
            one = _committed_offset(key.partition, committed)
        scope.room.take(one)
        return one

    by_topic: dict[str, list[Message]] = {}
    if topics is None:
        for key, committed in groups.all_committed(group_id):
            name = _shown(scope.admitted, key.topic)
            if name is None or scope.admitted.refusal(_DESCRIBE_TOPIC, name) is not None:
                continue
            by_topic.setdefault(name, []).append(answer(key, committed))
    else:
        for topic in topics:
            refusal = scope.admitted.refusal(_DESCRIBE_TOPIC, topic["name"])
            if refusal is not None:
                by_topic[topic["name"]] = _refused([topic], group_error_code(refusal))[0]["partitions"]
                continue
            stored = stored_as(scope.admitted, topic["name"])
            if scope.admitted.partitions(topic["name"]) is None:
                _check_resolved(scope.admitted, topic["name"])
            keys = [OffsetKey(group_id, stored, index) for index in topic["partition_indexes"]]
            by_topic[topic["name"]] = [answer(key, groups.committed(key)) for key in keys]
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]


def _shown(topics: ResolvedTopics, stored: str) -> str | None:
    """The name of the topic with this key name; None if it has none.

    Raises CoordinatorLoading if that is unknown now.
    """
    id_ = LastingId.of_stored(stored)
    if id_ is None:
        return stored
    light = topics.light(id_)
    if light is None:
        _check_resolved(topics, id_)
        return None
    return light.name


def _check_resolved(topics: ResolvedTopics, key: TopicKey) -> None:
    """Raise CoordinatorLoading where it was not found out in time whether there is a topic."""
    error = topics.error(key)
    if isinstance(error, NameNotResolved):
        raise unresolved(error)


def _committed_offset(index: int, committed: CommittedOffset | None) -> Message:
    if committed is None:
        return {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


def handle_offset_delete(context: Context, exchange: Exchange) -> None:
    """Delete a group's committed offsets of partitions to which no member subscribes."""
    request = exchange.message()
    named = Named(context, request, exchange.admitted.topics)

    def done(results: Sequence[DuramenError | None] | DuramenError) -> None:
        if isinstance(results, DuramenError):
            exchange.reply({"error_code": group_error_code(results)})
        else:
            exchange.reply({"topics": named.answered(results, group_error_code)})

    context.broker.groups.delete_offsets(request["group_id"], named.keys, done)
