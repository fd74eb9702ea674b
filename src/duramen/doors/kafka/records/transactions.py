"""Transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, descriptions."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from duramen.base.errors import (
    DuramenError,
    ProducerFenced,
    QueueTopicRefused,
    RequestInvalid,
    TopicNotAuthorized,
    TransactionAbortable,
)
from duramen.broker.partition import Writer
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.coordinators.group.coordinator import CommitMember
from duramen.doors.kafka.groups.named_partitions import Named
from duramen.doors.kafka.records.markers import describe_marked
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code, group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.metadata.decisions import check_name
from duramen.service.authorize import CLUSTER_NAME, Access, Operation, ResourceType
from duramen.service.resolve import ResolvedTopics
from duramen.transactions.values import NO_EPOCH, NO_PRODUCER, PartitionName, ProducerIdentity, TransactionState

__all__ = [
    "described_ids",
    "described_topics",
    "handle_add_offsets_to_txn",
    "handle_add_partitions_to_txn",
    "handle_describe_producers",
    "handle_describe_transactions",
    "handle_end_txn",
    "handle_init_producer_id",
    "handle_list_transactions",
    "handle_txn_offset_commit",
    "idempotent_only",
    "initialised_ids",
    "listed_ids",
]

_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
_DESCRIBE_TOPIC: Final = Access(Operation.DESCRIBE, ResourceType.TOPIC)
_KNOWS_FENCED: Final = {  # the first versions that know PRODUCER_FENCED
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_BUMPS_EPOCH: Final = 5  # EndTxn (KIP-890, part 2)
_JOINS: Final = 5  # TxnOffsetCommit
_KNOWS_ABORTABLE: Final = 4  # TxnOffsetCommit
_STATES: Final = {state.label: state for state in TransactionState}


def _code(exchange: Exchange, error: Exception | None) -> ErrorCode:
    """The coordinator's number for an error, as the request's version has it."""
    if isinstance(error, ProducerFenced):
        known = exchange.version >= _KNOWS_FENCED.get(ApiKey(exchange.header.api_key), 1 << 15)
        return ErrorCode.PRODUCER_FENCED if known else ErrorCode.INVALID_PRODUCER_EPOCH
    return group_error_code(error)


# -- producers ----------------------------------------------------------------------------------------


def initialised_ids(needs: ApiNeeds) -> Sequence[str]:
    """The transactional id in the request, if any."""
    id_ = needs.request["transactional_id"]
    return () if id_ is None else (id_,)


def idempotent_only(needs: ApiNeeds) -> Sequence[str]:
    """The cluster, if a producer requests an id without a transactional id."""
    return () if initialised_ids(needs) else (CLUSTER_NAME,)


def handle_init_producer_id(context: Context, exchange: Exchange) -> None:
    """An id for an idempotent producer; for a transactional one the next epoch of its own."""
    request = exchange.message()
    broker = context.broker
    id_ = request["transactional_id"]
    producer_id, epoch = request["producer_id"], request["producer_epoch"]

    def reply(identity: ProducerIdentity | None, error: DuramenError | None) -> None:
        found = identity if identity is not None and error is None else ProducerIdentity(NO_PRODUCER, NO_EPOCH)
        code = _code(exchange, error) if id_ is not None else error_code(error)
        exchange.reply({"error_code": code, "producer_id": found.producer_id, "producer_epoch": found.epoch})

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            reply(None, error)
        else:
            expected = None if producer_id == NO_PRODUCER else ProducerIdentity(producer_id, epoch)
            broker.transactions.initialise(id_, request["transaction_timeout_ms"], expected, reply)

    if (producer_id == NO_PRODUCER) != (epoch == NO_EPOCH) or id_ == "":
        reply(None, RequestInvalid("a producer id comes with its epoch, and a transactional id is not empty"))
    elif id_ is None:
        broker.producer_ids.allocate(lambda fresh, error: reply(ProducerIdentity(fresh, 0), error))
    else:
        # The stream may not be there yet if the client found the coordinator before a restart.
        broker.internal_streams.ensure_transactions(ready)


# -- transactions -------------------------------------------------------------------------------------


def handle_add_partitions_to_txn(context: Context, exchange: Exchange) -> None:
    """Partitions join a transaction, all of them or none."""
    request = exchange.message()
    topics = request["v3_and_below_topics"]
    named = exchange.admitted.topics
    wanted: list[PartitionName] = []
    refused: dict[PartitionName, ErrorCode] = {}
    for topic in topics:
        stream = named.find(topic["name"])
        refusal = named.error(topic["name"]) if stream is None else None
        if stream is not None and stream.shards:
            refusal = QueueTopicRefused(f"{stream.name} is a queue space and takes no transactions")
        if isinstance(refusal, QueueTopicRefused):
            context.broker.transactions.report_refused(refusal)
        for index in topic["partitions"]:
            partition = PartitionName(topic["name"], index)
            wanted.append(partition)
            if isinstance(refusal, QueueTopicRefused | TopicNotAuthorized):
                refused[partition] = error_code(refusal)
            elif stream is None or not 0 <= index < len(stream.partitions):
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif stream.internal:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # as in Apache Kafka

    def reply(error: DuramenError | None) -> None:
        code = ErrorCode.OPERATION_NOT_ATTEMPTED if refused else _code(exchange, error)
        codes = {partition: refused.get(partition, code) for partition in wanted}
        results = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": codes[PartitionName(topic["name"], index)]}
                    for index in topic["partitions"]
                ],
            }
            for topic in topics
        ]
        exchange.reply({"results_by_topic_v3_and_below": results})

    if refused:
        reply(None)
    else:
        identity = ProducerIdentity(request["v3_and_below_producer_id"], request["v3_and_below_producer_epoch"])
        context.broker.transactions.add_partitions(request["v3_and_below_transactional_id"], identity, wanted, reply)


def handle_add_offsets_to_txn(context: Context, exchange: Exchange) -> None:
    """The offsets of a group join a transaction."""
    request = exchange.message()
    broker = context.broker

    def reply(error: DuramenError | None) -> None:
        exchange.reply({"error_code": _code(exchange, error)})

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            reply(error)
        else:
            identity = ProducerIdentity(request["producer_id"], request["producer_epoch"])
            broker.transactions.add_group(request["transactional_id"], identity, request["group_id"], reply)

    if not request["group_id"]:
        exchange.reply({"error_code": ErrorCode.INVALID_GROUP_ID})
    else:
        broker.internal_streams.ensure_offsets(ready)


def handle_end_txn(context: Context, exchange: Exchange) -> None:
    """Commit or abort; from version 5 on the response has the producer id and epoch to continue with."""
    request = exchange.message()

    def done(identity: ProducerIdentity | None, error: DuramenError | None) -> None:
        found = identity if identity is not None and error is None else ProducerIdentity(NO_PRODUCER, NO_EPOCH)
        exchange.reply(
            {"error_code": _code(exchange, error), "producer_id": found.producer_id, "producer_epoch": found.epoch}
        )

    context.broker.transactions.end(
        request["transactional_id"],
        ProducerIdentity(request["producer_id"], request["producer_epoch"]),
        commit=request["committed"],
        version=2 if exchange.version >= _BUMPS_EPOCH else 0,
        done=done,
    )


def handle_txn_offset_commit(context: Context, exchange: Exchange) -> None:
    """Offsets of a group that count once the transaction is committed."""
    request = exchange.message()
    broker = context.broker
    named = Named(context, request, exchange.admitted.topics, keeps_renamed=True)

    def code(result: DuramenError | None) -> ErrorCode:
        abortable = isinstance(result, TransactionAbortable) and exchange.version < _KNOWS_ABORTABLE
        return ErrorCode.INVALID_TXN_STATE if abortable else _code(exchange, result)

    def done(results: Sequence[DuramenError | None] | DuramenError) -> None:
        exchange.reply({"topics": named.answered(results, code)})

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
            return
        identity = ProducerIdentity(request["producer_id"], request["producer_epoch"])
        member = CommitMember(request["member_id"], request["group_instance_id"], request["generation_id"])
        broker.transactions.commit_offsets(
            request["transactional_id"], identity, request["group_id"], member, named.offsets, done,
            joins=exchange.version >= _JOINS,
        )  # fmt: skip

    if named.there:
        broker.internal_streams.ensure_offsets(ready)
    else:
        done([])


# -- looking ------------------------------------------------------------------------------------------


def described_ids(needs: ApiNeeds) -> Sequence[str]:
    """The transactional ids in the request."""
    ids: Sequence[str] = needs.request["transactional_ids"]
    return ids


def described_topics(needs: ApiNeeds) -> Iterator[str]:
    """The topics of their transactions."""
    for id_ in described_ids(needs):
        with suppress(DuramenError):  # the handler raises that error
            yield from (topic for topic, _ in needs.context.broker.transactions.describe(id_).partitions)


def listed_ids(needs: ApiNeeds) -> Sequence[str]:
    """The transactional ids that there are."""
    return [one.id for one in needs.context.broker.transactions.listing(set(), set(), -1)]


def handle_describe_producers(context: Context, exchange: Exchange) -> None:
    """The producers of partitions with their open transactions; or ended transactions and open ones."""
    message = exchange.message()
    if any(topic["marked_from"] for topic in message["topics"]):
        describe_marked(context, exchange, message["topics"])
        return
    topics = []
    room = context.response_budget()
    for topic in message["topics"]:
        answers: list[Message] = []
        for index in topic["partition_indexes"]:
            try:
                room.check()
                check_name(topic["name"])
                writers = _producers(exchange.admitted.topics, topic["name"], index)
                room.take(writers)
            except DuramenError as error:
                answers.append({"partition_index": index, "error_code": error_code(error), "error_message": str(error)})
                continue
            active = [
                {
                    "producer_id": writer.producer_id,
                    "producer_epoch": writer.epoch,
                    "last_sequence": writer.last_sequence,
                    "last_timestamp": writer.last_ms,
                    "coordinator_epoch": -1,
                    "current_txn_start_offset": writer.transaction_offset,
                }
                for writer in writers
            ]
            answers.append({"partition_index": index, "active_producers": active})
        topics.append({"name": topic["name"], "partitions": answers})
    exchange.reply({"topics": topics})


def _producers(topics: ResolvedTopics, name: str, index: int) -> Sequence[Writer]:
    """The known producers of a partition; light topics do not keep them."""
    if index == 0 and topics.light(name) is not None:
        return ()
    return topics.get(name).partition(index).producers()


def handle_describe_transactions(context: Context, exchange: Exchange) -> None:
    """Transactional ids as they are."""
    states: list[Message] = []
    room = context.response_budget()
    for id_ in exchange.message()["transactional_ids"]:
        try:
            room.check()
            exchange.admitted.check(_DESCRIBE, id_)
            one = context.broker.transactions.describe(id_)
            room.take(one.partitions)
        except DuramenError as error:
            states.append({"transactional_id": id_, "error_code": _code(exchange, error)})
            continue
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(one.partitions):
            if exchange.admitted.refusal(_DESCRIBE_TOPIC, topic) is None:
                topics.setdefault(topic, []).append(index)
        states.append(
            {
                "transactional_id": id_,
                "transaction_state": one.state.label,
                "transaction_timeout_ms": one.timeout_ms,
                "transaction_start_time_ms": one.started_ms,
                "producer_id": one.producer_id,
                "producer_epoch": one.epoch,
                "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
            }
        )
    exchange.reply({"transaction_states": states})


def handle_list_transactions(context: Context, exchange: Exchange) -> None:
    """Every transactional id, or those that the filters let through."""
    request = exchange.message()
    wanted: Sequence[str] = request["state_filters"]
    states = {_STATES[name] for name in wanted if name in _STATES}
    listed = []
    if states or not wanted:
        listed = context.broker.transactions.listing(
            states, set(request["producer_id_filters"]), request["duration_filter"] if exchange.version >= 1 else -1
        )
    exchange.reply(
        {
            "unknown_state_filters": [name for name in wanted if name not in _STATES],
            "transaction_states": [
                {
                    "transactional_id": one.id,
                    "producer_id": one.producer_id,
                    "transaction_state": one.state.label,
                }
                for one in listed
                if exchange.admitted.refusal(_DESCRIBE, one.id) is None
            ],
        }
    )
