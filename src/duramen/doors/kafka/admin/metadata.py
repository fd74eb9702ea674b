"""Metadata, ApiVersions, DescribeCluster: topics, brokers, and supported versions."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final
from uuid import UUID

from duramen.base.errors import DuramenError, NameInvalid, NameNotResolved, StreamExists, StreamNotFound
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.messages import RESPONSES
from duramen.codec.kafka.metadata import TopicsByName, encode_topic, read_named, topic_end
from duramen.codec.kafka.schema import EncodedElements, Message
from duramen.codec.kafka.versions import APIS, FEATURES, ApiKey
from duramen.doors.kafka.request.brokers import (
    brokers,
    fenced_brokers,
    live_brokers,
    partition_answer,
    partition_at,
    shown_brokers,
)
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.metadata.decisions import Definition, check_name
from duramen.metadata.partitions import PartitionId
from duramen.service.authorize import CLUSTER_NAME, Access, Operation, ResourceType
from duramen.service.inventory_names import auto_create
from duramen.service.light_places import LightPlace
from duramen.service.light_topics import LightTopic
from duramen.service.resolve import Found, ResolvedTopics, TopicKey, stream_in

__all__ = [
    "TOPIC_OPERATIONS",
    "absence",
    "absent",
    "absent_names",
    "api_versions",
    "decode_metadata",
    "handle_api_versions",
    "handle_describe_cluster",
    "handle_metadata",
    "listed",
    "names",
    "nodes",
]

# What a client may do, as bits by Kafka's numbers of operations: everything, while there are no rights to give.
_CLUSTER_OPERATIONS: Final = 0b1111110100000
TOPIC_OPERATIONS: Final = 0b110111111000

_DESCRIBE_CLUSTER: Final = Access(Operation.DESCRIBE, ResourceType.CLUSTER)
_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.TOPIC)
_CREATE: Final = Access(Operation.CREATE, ResourceType.TOPIC)
_NO_OPERATIONS: Final = -2147483648
_NULL_ID: Final = UUID(int=0)
_BY_ID: Final = 12  # since this version topics are asked for by id; 10 and 11 have the field and no use for it
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_KNOWS_LEVEL_0: Final = 4  # Java clients of version 3 take a feature that begins at level 0 for damage (KAFKA-17011)
_FEATURES_EPOCH: Final = 1  # what is finalized never changes while the node runs


def api_versions(error: ErrorCode, version: int = 0) -> Message:
    """The implemented APIs, for a request of that version."""
    return {
        "error_code": error,
        "api_keys": [{"api_key": api.key, "min_version": api.low, "max_version": api.high} for api in APIS.values()],
        "supported_features": [
            {"name": feature.name, "min_version": feature.low, "max_version": feature.high}
            for feature in FEATURES
            if feature.low or version >= _KNOWS_LEVEL_0
        ],
        "finalized_features_epoch": _FEATURES_EPOCH,
        "finalized_features": [
            {"name": feature.name, "min_version_level": feature.finalized, "max_version_level": feature.finalized}
            for feature in FEATURES
        ],
    }


def handle_api_versions(_: Context, exchange: Exchange) -> None:
    """Answer with the supported versions of each API."""
    exchange.message()
    exchange.reply(api_versions(ErrorCode.NONE, exchange.version))


def handle_describe_cluster(context: Context, exchange: Exchange) -> None:
    """The nodes of the cluster; fenced ones only on request (KIP-1073)."""
    request = exchange.message()
    endpoint = request["endpoint_type"]
    if endpoint != _BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if endpoint == _CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        exchange.reply({"error_code": code, "error_message": f"this is a broker, not an endpoint of type {endpoint}"})
        return
    # As in Apache Kafka, everybody is told of the nodes.
    may = exchange.admitted.refusal(_DESCRIBE_CLUSTER, CLUSTER_NAME) is None
    wanted = request["include_cluster_authorized_operations"]
    fenced = request["include_fenced_brokers"]
    exchange.reply(
        {
            "cluster_id": context.cluster_id,
            "controller_id": context.broker.membership.controller_id,
            "brokers": _shown(context, fenced=fenced),
            "cluster_authorized_operations": (_CLUSTER_OPERATIONS if may else 0) if wanted else _NO_OPERATIONS,
        }
    )


def _shown(context: Context, *, fenced: bool) -> list[Message]:
    found = [(broker, False) for broker in brokers(context)]
    if fenced:
        found += [(broker, True) for broker in fenced_brokers(context)]
    return [
        {"broker_id": node_id, "host": host, "port": port, "rack": rack, "is_fenced": is_fenced}
        for (node_id, host, port, rack), is_fenced in sorted(found)
    ]


class _Reply:
    """A Metadata request: its response is gathered, and sent once it is complete."""

    def __init__(self, context: Context, exchange: Exchange, request: Message, count: int) -> None:
        self.context = context
        self._exchange = exchange
        self._request = request
        self._count = count
        self._found: dict[int, Message | bytes] = {}
        self._ends: dict[Partition, bytes] = {}
        if not count:
            self._reply()

    def put(self, at: int, topic: Message) -> None:
        """One topic's answer, in its place."""
        if not topic["error_code"]:
            topic["topic_authorized_operations"] = self._operations
        self._put(at, topic)

    def put_light(self, at: int, topic: LightPlace) -> None:
        """Like `put`, for a light topic: those of a partition differ in their names and ids only."""
        end = self._ends.get(topic.partition)
        if end is None:
            partition = tuple(_light_partition(self.context, topic.partition).items())
            end = self._ends[topic.partition] = topic_end(self._exchange.version, self._operations, partition)
        self._put(at, encode_topic(self._exchange.version, topic.name, topic.id, end))

    @property
    def _operations(self) -> int:
        return TOPIC_OPERATIONS if self._request["include_topic_authorized_operations"] else _NO_OPERATIONS

    def _put(self, at: int, topic: Message | bytes) -> None:
        self._found[at] = topic
        if len(self._found) == self._count:
            self._reply()

    def _reply(self) -> None:
        topics, version = [self._found[at] for at in range(self._count)], self._exchange.version
        answer = {**nodes(self.context), "topics": topics}
        if self._request["include_cluster_authorized_operations"]:
            answer["cluster_authorized_operations"] = _CLUSTER_OPERATIONS
        if not self._ends:
            self._exchange.reply(answer)
            return
        schema, encoded = RESPONSES[ApiKey.METADATA], EncodedElements()
        for topic in topics:
            if isinstance(topic, bytes):
                encoded.append(topic)
                continue
            if topic["error_code"]:
                self._exchange.failed(topic["error_code"])
            encoded.append(schema.encode_element(version, "topics", topic))
        self._exchange.reply_body(schema.encode(version, {**answer, "topics": encoded}))


def _names_none(needs: ApiNeeds) -> bool:
    """Whether the request is about all topics."""
    wanted = needs.request["topics"]
    return wanted is None or (needs.exchange.version == 0 and not wanted)


def names(needs: ApiNeeds) -> Sequence[TopicKey]:
    """The topics in the request, by name or by id."""
    wanted = () if _names_none(needs) else needs.request["topics"]
    return wanted if type(wanted) is TopicsByName else [_key(topic["name"], topic["topic_id"]) for topic in wanted]


def _key(name: str | None, topic_id: UUID) -> TopicKey:
    return topic_id if name is None or topic_id != _NULL_ID else name


def listed(needs: ApiNeeds) -> Iterable[str]:
    """All topics, where the request is about all."""
    if not _names_none(needs):
        return ()
    return [*(topic.name for topic in _every(needs.context)), *listed_light(needs)]


def listed_light(needs: ApiNeeds) -> Iterable[str]:
    """Topics of the inventory among all, where the request is about all."""
    return needs.context.service.light_names.listed() if _names_none(needs) else ()


def _every(context: Context) -> Iterable[Stream]:
    return chain(context.service.resolver.every(), context.broker.streams.live_topics)


def decode_metadata(_: Context, exchange: Exchange) -> None:
    """Most requests name all their topics, which then need no structure each."""
    header = exchange.header
    exchange.request = read_named(header.version, exchange.frame, header.end)
    if exchange.request is None:
        exchange.message()
    else:
        exchange.decoded(len(exchange.request["topics"]))


def absent_names(needs: ApiNeeds) -> Iterable[str]:
    """The topics that may have to be created."""
    return [name for name in names(needs) if isinstance(name, str)]


def handle_metadata(context: Context, exchange: Exchange) -> None:
    """The requested topics, or all; missing ones are created if that is allowed."""
    request = exchange.message()
    wanted: Sequence[Message] | TopicsByName | None = request["topics"]
    admitted = exchange.admitted
    if wanted is None or (exchange.version == 0 and not wanted):
        found = [_topic(context, one) for one in _every(context) if admitted.refusal(_DESCRIBE, one.name) is None]
        found += [
            _light_topic(context, light)
            for name in context.service.light_names.listed()
            if (light := admitted.topics.light(name)) is not None and admitted.refusal(_DESCRIBE, name) is None
        ]
        reply = _Reply(context, exchange, request, len(found))
        for at, answer in enumerate(found):
            reply.put(at, answer)
        return
    keys = _wanted(wanted)
    if exchange.version < _BY_ID and any(name is None or topic_id is not _NULL_ID for name, topic_id in keys):
        refused = [_missing(name or "", topic_id, ErrorCode.INVALID_REQUEST) for name, topic_id in keys]
        exchange.reply({"topics": refused, "controller_id": -1, "cluster_id": None})
        return
    may_create = request["allow_auto_topic_creation"] is not False
    places = admitted.topics.places([name for name, topic_id in keys if name is not None and topic_id is _NULL_ID])
    others = [_key(*one) for one in keys if one[0] not in places or one[1] is not _NULL_ID]
    topics = admitted.topics.looked_up(others)
    reply = _Reply(context, exchange, request, len(keys))
    for at, (name, topic_id) in enumerate(keys):
        place = None if name is None else places.get(name)
        if place is not None and topic_id is _NULL_ID:
            reply.put_light(at, place)
            continue
        put = partial(reply.put, at)
        if name is None or topic_id is not _NULL_ID:
            stream = topics.find(topic_id)
            light = None if stream is not None else topics.light(topic_id)
            if stream is not None:
                put(_topic(context, stream))
            elif light is not None:
                put(_light_topic(context, light))
            else:
                put(_missing(None, topic_id, absence(topics, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            _by_name(context, exchange, topics, name, put, may_create=may_create)


def _wanted(topics: Sequence[Message] | TopicsByName) -> list[tuple[str | None, UUID]]:
    """The names and ids of the requested topics, each once: an id that is not given is `_NULL_ID` itself."""
    if isinstance(topics, TopicsByName):
        return [(name, _NULL_ID) for name in topics]
    found = dict.fromkeys((topic["name"], topic["topic_id"]) for topic in topics)
    return [(name, _NULL_ID if topic_id == _NULL_ID else topic_id) for name, topic_id in found]


def _by_name(
    context: Context, exchange: Exchange, topics: ResolvedTopics, name: str, put: Callable[[Message], None], *,
    may_create: bool,
) -> None:  # fmt: skip
    stream = topics.find(name)
    light = None if stream is not None else topics.light(name)
    if light is not None:
        put(_light_topic(context, light))
        return
    creates = may_create and isinstance(topics.error(name), StreamNotFound) and _creates(context, name)
    refusal = exchange.admitted.refusal(_CREATE, name) if creates else None
    if stream is not None:
        put(_topic(context, stream))
    elif refusal is not None:
        put(_missing(name, _NULL_ID, error_code(refusal)))
    elif creates:
        _create(context, name, put)
    else:
        put(_missing(name, _NULL_ID, absence(topics, name, absent(name))))


def _creates(context: Context, name: str) -> bool:
    """Whether a missing topic may be created; for the inventory, the namespace's policy decides."""
    broker = context.broker
    return broker.names_inventory(name) or broker.settings.flag("auto.create.topics.enable")


def absence(topics: ResolvedTopics, key: TopicKey, missing: ErrorCode) -> ErrorCode:
    """Why a topic is not described; `missing` if it does not exist."""
    error = topics.error(key)
    if isinstance(error, StreamNotFound):
        return missing
    return ErrorCode.LEADER_NOT_AVAILABLE if isinstance(error, NameNotResolved) else error_code(error)


def absent(name: str) -> ErrorCode:
    """The response about a missing topic: whether it could be created."""
    try:
        check_name(name)
    except NameInvalid:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _create(context: Context, name: str, put: Callable[[Message], None]) -> None:
    broker = context.broker

    def created(error: DuramenError | None) -> None:
        context.service.resolver.resolve([name], lambda found: answer(found, error))

    def answer(found: Found, error: DuramenError | None) -> None:
        stream, topic = stream_in(found, name), found.get(name)
        if stream is not None:
            put(_topic(context, stream))
        elif isinstance(topic, LightTopic):
            put(_light_topic(context, topic))
        elif isinstance(error, StreamExists):
            # Somebody else is making it, and it is not durable yet: the client asks again.
            put(_missing(name, _NULL_ID, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            # Without an error it was created and is gone again.
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error_code(error)
            put(_missing(name, _NULL_ID, code))

    if broker.names_inventory(name):
        auto_create(broker.inventory, broker.settings.text("inventory.account"), name, created)
        return
    broker.create_stream(Definition(name, broker.settings.integer("num.partitions")), created, idempotent=True)


def _missing(name: str | None, topic_id: UUID, error: ErrorCode) -> Message:
    return {"error_code": error, "name": name, "topic_id": topic_id, "topic_authorized_operations": _NO_OPERATIONS}


def _topic(context: Context, stream: Stream) -> Message:
    live = live_brokers(context)
    partitions = [partition_answer(context, partition, live) for partition in stream.partitions]
    return {
        "error_code": ErrorCode.NONE,
        "name": stream.name,
        "topic_id": stream.id,
        "is_internal": stream.internal,
        "partitions": partitions,
        "topic_authorized_operations": _NO_OPERATIONS,
    }


def _light_topic(context: Context, topic: LightTopic) -> Message:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [_light_partition(context, topic.partition)],
        "topic_authorized_operations": _NO_OPERATIONS,
    }


def _light_partition(context: Context, partition: Partition) -> Message:
    place = PartitionId(partition.log.key.stream_id, partition.index)
    return partition_at(context, place, 0, live_brokers(context))


def nodes(context: Context) -> Message:
    """The cluster in Metadata."""
    return {
        "brokers": [broker._asdict() for broker in shown_brokers(context)],
        "cluster_id": context.cluster_id,
        "controller_id": context.broker.membership.controller_id,
    }
