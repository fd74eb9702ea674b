"""CreateTopics, DeleteTopics, CreatePartitions."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from duramen.base.errors import (
    ConfigInvalid,
    DuramenError,
    NameReserved,
    ReplicaAssignmentInvalid,
    RequestInvalid,
    StreamExists,
    StreamNotFound,
)
from duramen.broker.min_in_sync import config_entries
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.admin.resources import DescribedConfig, described
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.gather import gather
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.broker import Assignment
from duramen.service.resolve import Found, ResolvedTopics, TopicKey, stream_in

__all__ = ["created", "deleted", "handle_create_partitions", "handle_create_topics", "handle_delete_topics"]

_NULL_ID = UUID(int=0)
_BY_DEFAULT = -1
_CREATE: Final = Access(Operation.CREATE, ResourceType.TOPIC)


def _distinct(topics: Sequence[Message]) -> tuple[list[Message], set[str]]:
    """One entry per name, and the repeated names: as in Apache Kafka these get one response."""
    counts = Counter(topic["name"] for topic in topics)
    return list({topic["name"]: topic for topic in topics}.values()), {name for name in counts if counts[name] > 1}


# -- create -------------------------------------------------------------------------------------------


def created(needs: ApiNeeds) -> Sequence[str]:
    """The topics that are to be created."""
    return [topic["name"] for topic in needs.request["topics"]]


def handle_create_topics(context: Context, exchange: Exchange) -> None:
    """Create streams; each is answered once it is durable."""
    request = exchange.message()
    wanted, repeated = _distinct(request["topics"])
    put = gather(len(wanted), lambda topics: exchange.reply({"topics": topics}))
    for at, topic in enumerate(wanted):
        finish = partial(_created, context, topic["name"], partial(put, at), bool(request["validate_only"]))
        try:
            if topic["name"] in repeated:
                raise RequestInvalid(f"{topic['name']} is named more than once")
            exchange.admitted.check(_CREATE, topic["name"])
            definition, replication_factor, assignment = _definition(context, topic)
            if request["validate_only"]:
                context.broker.check_stream(definition, replication_factor=replication_factor, assignment=assignment)
        except DuramenError as error:
            finish(error)
            continue
        if request["validate_only"]:
            finish(None)
        else:
            context.broker.create_stream(
                definition, finish, replication_factor=replication_factor, assignment=assignment
            )


def _definition(context: Context, topic: Message) -> tuple[Definition, int | None, Assignment | None]:
    """The stream that is wanted, and how many replicas each partition is to have, or which."""
    broker = context.broker
    name, partitions, replicas = topic["name"], topic["num_partitions"], topic["replication_factor"]
    if topic["assignments"] and (partitions != -1 or replicas != -1):
        raise RequestInvalid("a request gives assignments or counts, not both")
    assignment = _assignment(topic["assignments"]) if topic["assignments"] else None
    if assignment is not None:
        partitions = len(assignment)
    if partitions == -1:
        partitions = broker.settings.integer("num.partitions")
    config: dict[str, str] = {}
    for entry in topic["configs"]:
        if entry["value"] is None:
            raise ConfigInvalid(f"{entry['name']} has no value")
        config[entry["name"]] = entry["value"]
    return Definition(name, partitions, config), None if replicas == _BY_DEFAULT else replicas, assignment


def _assignment(assignments: Sequence[Message]) -> Assignment:
    """The replicas of each partition. Raises ReplicaAssignmentInvalid."""
    by_index = {assignment["partition_index"]: tuple(assignment["broker_ids"]) for assignment in assignments}
    if len(by_index) != len(assignments) or sorted(by_index) != list(range(len(by_index))):
        raise ReplicaAssignmentInvalid("partitions are numbered from 0 without a gap")
    return tuple(by_index[index] for index in range(len(by_index)))


def _created(
    context: Context, name: str, put: Callable[[Message], None], only_checked: bool, error: DuramenError | None
) -> None:
    answer: dict[str, Any] = {"name": name, "configs": []} | _outcome(error)
    if (error is not None and not isinstance(error, NameReserved)) or (error is None and only_checked):
        put(answer)
        return

    def found(topics: Found) -> None:
        stream = stream_in(topics, name)
        if name in topics and stream is None:
            answer.update(_outcome(StreamExists(f"{name} exists: it is a topic of the inventory")))
        if stream is not None:
            entries = config_entries(context.broker.metadata_state, stream)
            answer.update(
                topic_id=stream.id,
                num_partitions=len(stream.partitions),
                replication_factor=len(context.broker.membership.partition(PartitionId(stream.id, 0)).replicas),
                configs=[_config(described(entry)) for entry in entries],
            )
        put(answer)

    context.service.resolver.resolve([name], found)


def _outcome(error: DuramenError | None) -> Message:
    return {"error_code": error_code(error), "error_message": None if error is None else str(error)}


def _config(config: DescribedConfig) -> Message:
    return {"name": config.name, "value": config.value, "config_source": config.source}


# -- delete -------------------------------------------------------------------------------------------


def deleted(needs: ApiNeeds) -> Sequence[TopicKey]:
    """The topics that are to be deleted, by name or by id."""
    named: list[TopicKey] = [_key(topic["name"], topic["topic_id"]) for topic in needs.request["topics"]]
    return [*named, *needs.request["topic_names"]]


def handle_delete_topics(context: Context, exchange: Exchange) -> None:
    """Delete streams, by name or by id."""
    request = exchange.message()
    named = [(topic["name"], topic["topic_id"]) for topic in request["topics"]]
    named += [(name, _NULL_ID) for name in request["topic_names"]]
    counts = Counter(named)
    wanted = list(counts)
    put = gather(len(wanted), lambda responses: exchange.reply({"responses": responses}))
    topics = exchange.admitted.topics
    ids = Counter(stream.id for stream in (topics.find(_key(*one)) for one in wanted) if stream is not None)
    for at, (name, topic_id) in enumerate(wanted):
        stream = topics.find(_key(name, topic_id))
        answer = {"name": name, "topic_id": topic_id}
        if (name is None) == (topic_id == _NULL_ID):
            _refuse(partial(put, at), answer, ErrorCode.INVALID_REQUEST, "a topic is given by its name or by its id")
        elif counts[name, topic_id] > 1 or (stream is not None and ids[stream.id] > 1):
            _refuse(partial(put, at), answer, ErrorCode.INVALID_REQUEST, "a topic is named more than once")
        elif stream is None:
            _refuse(partial(put, at), answer, *_absence(topics, name, topic_id))
        else:
            answer = {"name": stream.name, "topic_id": stream.id}
            context.broker.delete_stream(stream.name, partial(_deleted, partial(put, at), answer))


def _key(name: str | None, topic_id: UUID) -> TopicKey:
    return topic_id if name is None else name


def _absence(topics: ResolvedTopics, name: str | None, topic_id: UUID) -> tuple[ErrorCode, str]:
    error = topics.error(_key(name, topic_id))
    if not isinstance(error, StreamNotFound):
        return error_code(error), str(error)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return missing, "there is no such topic"


def _refuse(put: Callable[[Message], None], answer: Message, code: ErrorCode, why: str) -> None:
    put(answer | {"error_code": code, "error_message": why})


def _deleted(put: Callable[[Message], None], answer: Message, error: DuramenError | None) -> None:
    put(answer | _outcome(error))


# -- partitions ---------------------------------------------------------------------------------------


def handle_create_partitions(context: Context, exchange: Exchange) -> None:
    """Give streams more partitions."""
    request = exchange.message()
    wanted, repeated = _distinct(request["topics"])
    put = gather(len(wanted), lambda results: exchange.reply({"results": results}))
    for at, topic in enumerate(wanted):
        finish = partial(_grown, partial(put, at), topic["name"])
        try:
            if topic["name"] in repeated:
                raise RequestInvalid(f"{topic['name']} is named more than once")
            assignment = _growth(context, exchange.admitted.topics, topic)
        except DuramenError as error:
            finish(error)
            continue
        if request["validate_only"]:
            finish(None)
        else:
            context.broker.add_partitions(topic["name"], topic["count"], finish, assignment=assignment)


def _growth(context: Context, topics: ResolvedTopics, topic: Message) -> Assignment | None:
    """The replicas of the new partitions, if given. Raises the error of the request."""
    stream = topics.get(topic["name"])
    assignments = topic["assignments"]
    assignment = None if assignments is None else tuple(tuple(one["broker_ids"]) for one in assignments)
    context.broker.check_partitions(topic["name"], topic["count"])
    if assignment is not None and len(assignment) != topic["count"] - len(stream.partitions):
        raise ReplicaAssignmentInvalid("there is one assignment for each new partition")
    context.broker.check_partitions(topic["name"], topic["count"], assignment=assignment)
    return assignment


def _grown(put: Callable[[Message], None], name: str, error: DuramenError | None) -> None:
    put({"name": name} | _outcome(error))
