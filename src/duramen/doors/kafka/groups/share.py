"""Share groups (KIP-932): heartbeats, descriptions, and their offsets in partitions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, NameNotResolved, RequestInvalid, StreamNotFound
from duramen.codec.kafka.schema import Message
from duramen.coordinators.share.shares import ShareOffset
from duramen.doors.kafka.groups.descriptions import reply_descriptions, with_message
from duramen.doors.kafka.groups.named_partitions import unresolved
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code, share_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.groups.share_assignor import Place
from duramen.groups.share_group import JOINING, LEAVING, ShareGroup, ShareHeartbeat, ShareHeartbeatResult
from duramen.groups.share_records import ShareKey
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.light_topics import LastingId
from duramen.service.resolve import ResolvedTopics, TopicKey

__all__ = [
    "handle_alter_share_group_offsets",
    "handle_delete_share_group_offsets",
    "handle_describe_share_group_offsets",
    "handle_share_group_describe",
    "handle_share_group_heartbeat",
    "offset_topics",
]

_ASSIGNOR = "simple"
_NULL_ID = UUID(int=0)
_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.GROUP)

Places = Mapping[ShareKey, ShareOffset | DuramenError | None]


# -- members ------------------------------------------------------------------------------------------


def handle_share_group_heartbeat(context: Context, exchange: Exchange) -> None:
    """A member joins, is alive or leaves."""
    request = exchange.message()
    broker, group_id = context.broker, request["group_id"]
    topics = request["subscribed_topic_names"]
    leaves = request["member_epoch"] == LEAVING
    heartbeat = ShareHeartbeat(
        request["member_id"], request["member_epoch"], request["rack_id"], topics,
        exchange.header.client_id or "", exchange.client_host,
    )  # fmt: skip

    def done(result: ShareHeartbeatResult | DuramenError) -> None:
        if isinstance(result, DuramenError):
            exchange.reply(with_message(result))
            return
        assignment = None if result.assignment is None else {"topic_partitions": _by_topic_id(result.assignment)}
        exchange.reply(
            {
                "member_id": result.member_id,
                "member_epoch": result.epoch,
                "heartbeat_interval_ms": 0 if leaves else broker.sharing.config(group_id).heartbeat_ms,
                "assignment": assignment,
            }
        )

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
        else:
            broker.share_groups.heartbeat(group_id, heartbeat, done)

    try:
        _check_heartbeat(request)
        broker.groups.check(group_id)
    except DuramenError as error:
        done(error)
    else:
        broker.internal_streams.ensure_shares(ready)


def _check_heartbeat(request: Message) -> None:
    if not request["group_id"] or not request["member_id"]:
        raise RequestInvalid("a heartbeat needs the ids of group and member")
    if request["member_epoch"] < LEAVING:
        raise RequestInvalid(f"a member's epoch is not {request['member_epoch']}")
    if request["rack_id"] == "":
        raise RequestInvalid("a rack id is not empty")
    topics = request["subscribed_topic_names"]
    if request["member_epoch"] == JOINING and not topics:
        raise RequestInvalid("a member that joins names the topics that it wants")


def _by_topic_id(places: frozenset[Place]) -> list[Message]:
    found: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(places):
        found.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in found.items()]


def handle_share_group_describe(context: Context, exchange: Exchange) -> None:
    """Groups with their members and the assignments of each."""

    def describe(group_id: str) -> Message:
        context.broker.groups.check(group_id)
        return _described(context, context.broker.share_groups.find(group_id))

    reply_descriptions(context, exchange, exchange.message()["group_ids"], describe)


def _described(context: Context, group: ShareGroup) -> Message:
    def named(places: frozenset[Place]) -> list[Message]:
        """Without deleted topics: members learn of the deletion with their next heartbeat."""
        name_of = context.broker.groups.consumer.topics.name_of
        found = [(topic, name_of(topic["topic_id"])) for topic in _by_topic_id(places)]
        return [topic | {"topic_name": name} for topic, name in found if name is not None]

    return {
        "group_id": group.id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.epoch,
        "assignor_name": _ASSIGNOR,
        "members": [
            {
                "member_id": member.id,
                "rack_id": member.rack_id,
                "member_epoch": member.epoch,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscribed_topic_names": member.topics,
                "assignment": {"topic_partitions": named(member.assignment)},
            }
            for member in group
        ],
    }


# -- offsets ------------------------------------------------------------------------------------------


class SharedTopic(NamedTuple):
    """A topic that share groups may read; its state is stored under the id `stored`."""

    name: str
    id: UUID
    stored: UUID
    partitions: int


def offset_topics(needs: ApiNeeds) -> Iterator[TopicKey]:
    """The topics in the request; if it requests all, those of the group."""
    share_nodes = needs.context.broker.share_nodes
    for wanted in needs.request["groups"]:
        if wanted["topics"] is not None:
            yield from (topic["topic_name"] for topic in wanted["topics"])
            continue
        with suppress(DuramenError):  # the handler raises that error
            needs.context.broker.groups.check(wanted["group_id"])
            for topic_id in _places(needs.context, wanted["group_id"]):
                if share_nodes.topics.lasting.is_lasting(topic_id):
                    yield LastingId(topic_id.hex)
                else:
                    yield from filter(None, [share_nodes.topics.name_of(topic_id)])


def _places(context: Context, group_id: str) -> dict[UUID, list[int]]:
    """The partitions of a group, by the id that state is stored under. Raises GroupNotFound."""
    found: dict[UUID, list[int]] = {}
    for key in context.broker.share_groups.keys(group_id):
        found.setdefault(key.topic_id, []).append(key.partition)
    return found


def handle_describe_share_group_offsets(context: Context, exchange: Exchange) -> None:
    """The start offsets of share groups in their partitions (KIP-932), and the lag (KIP-1226)."""
    wanted: dict[str, dict[str, Sequence[int]] | DuramenError] = {}
    known: list[ShareKey] = []
    admitted = exchange.admitted
    for asked in exchange.message()["groups"]:
        group_id, topics = asked["group_id"], asked["topics"]
        try:
            admitted.check(_DESCRIBE, group_id)
            context.broker.groups.check(group_id)
            found = _places(context, group_id)
            if topics is not None:
                named = {topic["topic_name"]: topic["partitions"] for topic in topics}
            else:
                shown = ((_shown(context, admitted, topic_id), indexes) for topic_id, indexes in found.items())
                named = {name: indexes for name, indexes in shown if name is not None}
        except DuramenError as error:
            wanted[group_id] = error
        else:
            wanted[group_id] = named
            known += _keys(admitted.topics, group_id, found, named)
    context.broker.share_nodes.locate(
        known, lambda places: exchange.reply({"groups": _groups(context, admitted.topics, wanted, places)})
    )


def _keys(
    named: ResolvedTopics,
    group_id: str,
    known: Mapping[UUID, Sequence[int]],
    wanted: Mapping[str, Sequence[int]],
) -> Iterator[ShareKey]:
    """The share partitions that a group has among those that are wanted."""
    for topic, indexes in wanted.items():
        found = _topic(named, topic)
        if found is None:
            continue
        for index in sorted({*indexes} & {*known.get(found.stored, ())}):
            if 0 <= index < found.partitions:
                yield ShareKey(group_id, found.stored, index)


def _shown(context: Context, named: ResolvedTopics, topic_id: UUID) -> str | None:
    """The name of a topic of a group; None if it is gone. Raises CoordinatorLoading if that is unknown at present."""
    topics = context.broker.share_nodes.topics
    if not topics.lasting.is_lasting(topic_id):
        return topics.name_of(topic_id)
    id_ = LastingId(topic_id.hex)
    light = named.light(id_)
    error = named.error(id_) if light is None else None
    if isinstance(error, NameNotResolved):
        raise unresolved(error)
    return None if light is None else light.name


def _groups(
    context: Context,
    named: ResolvedTopics,
    wanted: Mapping[str, Mapping[str, Sequence[int]] | DuramenError],
    places: Places,
) -> list[Message]:
    groups: list[Message] = []
    room = context.response_budget()
    for group_id, topics in wanted.items():
        try:
            if isinstance(topics, DuramenError):
                raise topics
            room.check()
            described = [_offsets(named, group_id, *topic, places) for topic in topics.items()]
            room.take(described)
            groups.append({"group_id": group_id, "topics": described})
        except DuramenError as error:
            groups.append({"group_id": group_id, **with_message(error)})
    return groups


def _offsets(
    named: ResolvedTopics, group_id: str, topic: str, indexes: Sequence[int], places: Places
) -> Message:  # fmt: skip
    known = _topic(named, topic)
    refusal = named.error(topic) if known is None else None
    partitions = []
    for index in indexes:
        answer: dict[str, Any] = {"partition_index": index, "start_offset": -1, "leader_epoch": 0}
        # As in Apache Kafka, a group has no offset in a partition that is not there: no error.
        if refusal is not None and not isinstance(refusal, StreamNotFound):
            answer |= {"error_code": share_error_code(refusal), "error_message": str(refusal)}
        if known is not None and 0 <= index < known.partitions:
            found = places.get(ShareKey(group_id, known.stored, index))
            if isinstance(found, DuramenError):
                answer |= {"error_code": share_error_code(found), "error_message": str(found)}
            else:
                found = found or ShareOffset(-1, 0, -1)
                answer |= {"start_offset": found.start_offset, "leader_epoch": found.leader_epoch, "lag": found.lag}
        partitions.append(answer)
    return {"topic_name": topic, "topic_id": _NULL_ID if known is None else known.id, "partitions": partitions}


def _topic(named: ResolvedTopics, name: str) -> SharedTopic | None:
    """The stream or the light topic that share groups may read by a name."""
    stream, light = named.find(name), named.light(name)
    if stream is not None:
        return SharedTopic(name, stream.id, stream.id, len(stream.partitions))
    return None if light is None else SharedTopic(name, light.id, light.shared_as, 1)


def handle_alter_share_group_offsets(context: Context, exchange: Exchange) -> None:
    """Reset the offsets of a group without members; the response comes once that is durable."""
    request = exchange.message()
    starts: list[tuple[Place, int]] = []
    topics: list[Message] = []
    for topic in request["topics"]:
        known = _topic(exchange.admitted.topics, topic["topic_name"])
        answers: list[Message] = []
        for asked in topic["partitions"]:
            answer: dict[str, Any] = {"partition_index": asked["partition_index"]}
            try:
                if known is None:
                    raise exchange.admitted.topics.error(topic["topic_name"])
                if not 0 <= asked["partition_index"] < known.partitions:
                    raise StreamNotFound(f"{known.name} has no partition {asked['partition_index']}")
            except DuramenError as error:
                answer |= with_message(error)
            else:
                starts.append(((known.stored, asked["partition_index"]), asked["start_offset"]))
            answers.append(answer)
        topic_id = _NULL_ID if known is None else known.id
        topics.append({"topic_name": topic["topic_name"], "topic_id": topic_id, "partitions": answers})

    def done(error: DuramenError | None) -> None:
        exchange.reply({"responses": topics} if error is None else with_message(error))

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
        else:
            context.broker.share_groups.alter_offsets(request["group_id"], starts, done)

    try:
        context.broker.groups.check(request["group_id"])
    except DuramenError as error:
        done(error)
    else:
        context.broker.internal_streams.ensure_shares(ready)


def handle_delete_share_group_offsets(context: Context, exchange: Exchange) -> None:
    """Forget where a group without members is in topics; answered once that is durable."""
    request = exchange.message()
    groups, group_id = context.broker.share_groups, request["group_id"]
    try:
        context.broker.groups.check(group_id)
        groups.check_empty(group_id)
    except DuramenError as error:
        exchange.reply(with_message(error))
        return
    known = _places(context, group_id)
    answers: list[Message] = []
    parts = Countdown(lambda: exchange.reply({"responses": answers}))

    def finish(answer: dict[str, Any], error: DuramenError | None) -> None:
        if error is not None:
            answer |= {"error_code": error_code(error), "error_message": str(error)}
        parts.count_down()

    for name in dict.fromkeys(topic["topic_name"] for topic in request["topics"]):
        topic = _topic(exchange.admitted.topics, name)
        # As in Apache Kafka, without its id where the group has nothing of it.
        answer: dict[str, Any] = {"topic_name": name, "topic_id": _NULL_ID}
        answers.append(answer)
        parts.add()
        refusal = exchange.admitted.topics.error(name) if topic is None else None
        if refusal is not None and not isinstance(refusal, StreamNotFound):
            finish(answer, refusal)
        elif topic is None or topic.stored not in known:
            finish(answer, StreamNotFound(f"share group {group_id} does not read a stream {name}"))
        else:
            answer["topic_id"] = topic.id
            groups.delete_offsets(group_id, topic.stored, partial(finish, answer))
    parts.count_down()
