"""Error responses for every API and version, in the form that clients expect."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.admin.metadata import nodes
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.refused_batches import SENT_AGAIN, note_all_refused
from duramen.service.resolve import Found

__all__ = ["refuse"]

# The answer has an entry for each thing that was asked about: in which array, and under which name where the request
# has nothing but the thing itself. Other arrays stay empty.
_ENTRIES: Final[Mapping[ApiKey, Mapping[str, tuple[str, str]]]] = {
    ApiKey.FIND_COORDINATOR: {"coordinator_keys": ("coordinators", "key")},
    ApiKey.OFFSET_FETCH: {
        "groups": ("groups", ""), "topics": ("topics", ""), "partition_indexes": ("partitions", "partition_index"),
    },
    ApiKey.DESCRIBE_GROUPS: {"groups": ("groups", "group_id")},
    ApiKey.DELETE_TOPICS: {"topics": ("responses", ""), "topic_names": ("responses", "name")},
    ApiKey.DESCRIBE_CONFIGS: {"resources": ("results", "")},
    ApiKey.ALTER_CONFIGS: {"resources": ("responses", "")},
    ApiKey.CREATE_PARTITIONS: {"topics": ("results", "")},
    ApiKey.DELETE_GROUPS: {"groups_names": ("results", "group_id")},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": ("responses", "")},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_topics": ("results_by_topic_v3_and_below", ""),
        "partitions": ("results_by_partition", "partition_index"),
    },
    ApiKey.ELECT_LEADERS: {
        "topic_partitions": ("replica_election_results", ""), "partitions": ("partition_result", "partition_id"),
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"topics": ("responses", ""), "partitions": ("partitions", "")},
    ApiKey.ALTER_CLIENT_QUOTAS: {"entries": ("entries", ""), "entity": ("entity", "")},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": ("topics", ""), "partition_indexes": ("partitions", "partition_index")},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ("transaction_states", "transactional_id")},
}  # fmt: skip
_TOPICS: Final = {"topics": ("topics", ""), "partitions": ("partitions", "")}
# The values of a broker without data; a response omits fields that it does not have.
_NOTHING: Final[Message] = {
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "end_offset": -1,
    "generation_id": -1,
    "host": "",
    "leader_epoch": -1,
    "low_watermark": -1,
    "metadata": "",
    "node_id": -1,
    "num_partitions": -1,
    "offset": -1,
    "port": -1,
    "producer_epoch": -1,
    "producer_id": -1,
    "protocol_name": "",
    "replication_factor": -1,
    "timestamp": -1,
}
_OF_THE_SESSION: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_NULL_ID: Final = UUID(int=0)
_NAMELESS: Final = 12


def refuse(context: Context, exchange: Exchange, code: ErrorCode, why: str = "") -> None:
    """Answer with the error and do nothing. Raises RequestInvalid where the request is damaged."""
    api = ApiKey(exchange.header.api_key)
    if api is ApiKey.PRODUCE:
        _refuse_produce(context, exchange, code)
    elif api is ApiKey.FETCH:
        _refuse_fetch(exchange, code)
    elif api is ApiKey.METADATA:
        _refuse_metadata(context, exchange, code)
    else:
        request = exchange.message()
        message = _entry(request, _ENTRIES.get(api, _TOPICS), code, why or code.name)
        exchange.reply({"member_id": request.get("member_id", ""), **message})


def _entry(asked: Mapping[str, Any], arrays: Mapping[str, tuple[str, str]], code: ErrorCode, why: str) -> Message:
    """The error response for one item of the request, with its nested items."""
    entry: Message = {
        **_NOTHING,
        "error_code": code,
        "partition_error_code": code,
        "error_message": why,
    }
    for name, (place, key) in arrays.items():
        things = asked.get(name)
        if isinstance(things, list):
            entry[place] = [_about(thing, key, arrays, code, why) for thing in things]
    return entry


def _about(thing: object, key: str, arrays: Mapping[str, tuple[str, str]], code: ErrorCode, why: str) -> Message:
    if not isinstance(thing, dict):
        return {**_entry({}, arrays, code, why), key: thing}
    named = {name: value for name, value in thing.items() if isinstance(value, str | int | UUID)}
    return {**named, **_entry(thing, arrays, code, why)}


def _refuse_produce(context: Context, exchange: Exchange, code: ErrorCode) -> None:
    request = produce.decode_request(exchange.version, exchange.frame, exchange.header.end)
    if code in SENT_AGAIN:
        note_all_refused(context, request)
    exchange.failed(code)
    if request.acks == 0:
        exchange.send(None)
        return
    topics = [
        produce.TopicResponse(name, [produce.PartitionResponse(index, code, -1) for index, _ in partitions])
        for name, partitions in request.topics
    ]
    exchange.reply_body(produce.encode_response(exchange.version, topics))


def _refuse_fetch(exchange: Exchange, code: ErrorCode) -> None:
    request = fetch.decode_request(exchange.version, exchange.frame, exchange.header.end)
    exchange.failed(code)
    if code in _OF_THE_SESSION:
        exchange.reply_body(b"".join(fetch.encode_response(exchange.version, [], fetch.ResponseHead(code))))
        return
    topics = [
        fetch.TopicAnswer(topic, [fetch.PartitionAnswer(one.partition, code, -1, -1, -1, 0) for one in partitions])
        for topic, partitions in request.topics
    ]
    exchange.reply_body(b"".join(fetch.encode_response(exchange.version, topics)))


def _refuse_metadata(context: Context, exchange: Exchange, code: ErrorCode) -> None:
    resolver = context.service.resolver
    asked = exchange.message()["topics"]
    every = asked is None or (exchange.version == 0 and not asked)

    def answer(found: Found) -> None:
        topics = [_missing(stream.name, stream.id, code) for stream in (resolver.every() if every else ())]
        for topic in () if every else asked:
            topic_id = topic["topic_id"]
            by_id = found.get(topic_id)
            name = topic["name"] if by_id is None else by_id.name
            # An answer by id needs a name too, until there is a version that may leave it out.
            topics.append(_missing(name or ("" if exchange.version < _NAMELESS else None), topic_id, code))
        exchange.reply({**nodes(context), "topics": topics, "error_code": ErrorCode.NONE if topics else code})

    resolver.resolve([topic["topic_id"] for topic in asked or () if topic["topic_id"] != _NULL_ID], answer)


def _missing(name: str | None, topic_id: UUID, code: ErrorCode) -> Message:
    return {"error_code": code, "name": name, "topic_id": topic_id}
