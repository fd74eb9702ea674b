"""Transactions as unmodified clients use them: committed, aborted, fenced, with offsets, read both ways."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.clients import until
from tests.raw import connect
from tests.untyped import untyped

from duramen.client.connection import BrokerConnection
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.produce import decode_response as decode_produce
from duramen.codec.kafka.produce import encode_request as encode_produce
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_S = 60.0
_GROUPS = itertools.count()


def transactional(node: NodeProcess, name: str, **config: object) -> Producer:
    """A producer that has asked for its id."""
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": name, "linger.ms": 0, **config})
    producer.init_transactions(_S)
    return producer


def values(node: NodeProcess, stream: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything that a consumer reads up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka, "group.id": f"reader-{next(_GROUPS)}", "auto.offset.reset": "earliest",
            "isolation.level": isolation, "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    partitions = consumer.list_topics(stream, timeout=_S).topics[stream].partitions
    consumer.assign([TopicPartition(stream, index, 0) for index in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message.value() or b"")
    consumer.close()
    return found


def committed_offset(node: NodeProcess, group: str, stream: str) -> int:
    """What a group has committed for the first partition; -1001 for nothing."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": group})
    (found,) = consumer.committed([TopicPartition(stream, 0)], timeout=_S)
    consumer.close()
    return int(found.offset)


# -- confluent-kafka ----------------------------------------------------------------------------------


def test_confluent_commits_and_aborts(node: NodeProcess, stream_name: str) -> None:
    producer = transactional(node, stream_name)
    for round_, end in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(stream_name, b"%d-%d" % (round_, number))
        producer.flush(_S)
        end(_S)
    committed = [b"%d-%d" % (round_, number) for round_ in (0, 2) for number in range(10)]
    assert values(node, stream_name) == committed
    assert len(values(node, stream_name, "read_uncommitted")) == 30


def test_readers_of_what_is_committed_stop_where_a_transaction_is_open(node: NodeProcess, stream_name: str) -> None:
    first, second = transactional(node, f"{stream_name}-1"), transactional(node, f"{stream_name}-2")
    first.begin_transaction()
    first.produce(stream_name, b"open")
    first.flush(_S)
    second.begin_transaction()
    second.produce(stream_name, b"committed behind it")
    second.commit_transaction(_S)
    assert values(node, stream_name) == []
    reader = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name, "isolation.level": "read_committed"})
    assert reader.get_watermark_offsets(TopicPartition(stream_name, 0), timeout=_S)[1] == 0
    reader.close()
    first.abort_transaction(_S)
    assert values(node, stream_name) == [b"committed behind it"]


@pytest.mark.long
def test_a_producer_with_the_same_name_fences_the_one_before(node: NodeProcess, stream_name: str) -> None:
    zombie = transactional(node, stream_name)
    zombie.begin_transaction()
    zombie.produce(stream_name, b"from the zombie")
    zombie.flush(_S)
    heir = transactional(node, stream_name)
    zombie.produce(stream_name, b"late")
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(_S)
    assert raised.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(stream_name, b"from the heir")
    heir.commit_transaction(_S)
    assert values(node, stream_name) == [b"from the heir"]


def test_consume_transform_produce(node: NodeProcess, stream_name: str) -> None:
    source, target, group = f"{stream_name}-in", f"{stream_name}-out", f"{stream_name}-group"
    plain = Producer({"bootstrap.servers": node.kafka})
    for number in range(20):
        plain.produce(source, b"%d" % number)
    plain.flush(_S)
    consumer = Consumer(
        {"bootstrap.servers": node.kafka, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "isolation.level": "read_committed"}
    )  # fmt: skip
    joined: list[TopicPartition] = []
    consumer.subscribe([source], on_assign=lambda _, partitions: joined.extend(partitions))
    # A member that commits with the generation from before its join ends is refused, as in Kafka.
    until(lambda: consumer.poll(0.1) is not None or joined)
    producer = transactional(node, stream_name)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        consumer.assign([TopicPartition(source, 0, 0)])
        taken = 0
        while taken < 20:
            message = consumer.poll(_S)
            assert message is not None
            assert not message.error()
            producer.produce(target, (message.value() or b"") + b"!")
            taken += 1
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _S)
        assert committed_offset_raw(node, group, source) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        end(_S)
        expected = 20 if end == producer.commit_transaction else -1001
        assert committed_offset(node, group, source) == expected
    consumer.close()
    assert values(node, target) == [b"%d!" % number for number in range(20)]


def committed_offset_raw(node: NodeProcess, group: str, stream: str) -> int:
    """The error of an OffsetFetch that wants stable offsets."""
    connection = connect(node)
    wish = {
        "groups": [{"group_id": group, "topics": [{"name": stream, "partition_indexes": [0]}]}],
        "require_stable": True,
    }
    answer = connection.request(ApiKey.OFFSET_FETCH, wish)
    connection.close()
    code: int = answer["groups"][0]["topics"][0]["partitions"][0]["error_code"]
    return code


def test_an_open_transaction_survives_a_restart(new_node: Callable[..., NodeProcess], stream_name: str) -> None:
    node = new_node()
    node.start()
    producer = transactional(node, stream_name, **{"transaction.timeout.ms": 60_000})
    producer.begin_transaction()
    producer.produce(stream_name, b"before")
    producer.flush(_S)
    node.kill()
    node.start()
    producer.produce(stream_name, b"after")
    producer.commit_transaction(_S)
    assert values(node, stream_name) == [b"before", b"after"]


# -- kafka-python and aiokafka ------------------------------------------------------------------------


@pytest.mark.long
def test_kafka_python_commits_and_aborts(node: NodeProcess, stream_name: str) -> None:
    producer = untyped("kafka").KafkaProducer(bootstrap_servers=node.kafka, transactional_id=stream_name)
    producer.init_transactions()
    for round_, end in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        for number in range(5):
            producer.send(stream_name, b"%d-%d" % (round_, number)).get(_S)
        end()
    producer.close()
    committed = [b"%d-%d" % (round_, number) for round_ in (0, 2) for number in range(5)]
    assert values(node, stream_name) == committed
    consumer = untyped("kafka").KafkaConsumer(
        stream_name, bootstrap_servers=node.kafka, isolation_level="read_committed", auto_offset_reset="earliest",
        group_id=None,
    )  # fmt: skip
    read: list[bytes] = []
    while len(read) < len(committed):
        for records in consumer.poll(1000).values():
            read += [record.value for record in records]
    assert read == committed
    consumer.close()


def test_aiokafka_commits_and_aborts(node: NodeProcess, stream_name: str) -> None:
    aiokafka = untyped("aiokafka")

    async def main() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=node.kafka, transactional_id=stream_name)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(stream_name, b"kept")
        await producer.begin_transaction()
        await producer.send_and_wait(stream_name, b"dropped")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(stream_name, b"kept too")
            await producer.send_offsets_to_transaction({aiokafka.TopicPartition(stream_name, 0): 1}, stream_name)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            stream_name, bootstrap_servers=node.kafka, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        read = [(await consumer.getone()).value for _ in range(2)]
        await consumer.stop()
        return read

    assert asyncio.run(main()) == [b"kept", b"kept too"]
    assert committed_offset(node, stream_name, stream_name) == 1


# -- below every client -------------------------------------------------------------------------------


def begun(node: NodeProcess, name: str, timeout_ms: int = 60_000) -> tuple[BrokerConnection, int, int]:
    """A connection, and id and epoch of a new producer."""
    connection = connect(node)
    answer = connection.request(
        ApiKey.INIT_PRODUCER_ID, {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    )
    assert answer["error_code"] == 0
    return connection, answer["producer_id"], answer["producer_epoch"]


def test_a_timeout_that_is_too_long(node: NodeProcess, stream_name: str) -> None:
    connection = connect(node)
    for timeout_ms in (0, -1, 900_001):
        wish = {"transactional_id": stream_name, "transaction_timeout_ms": timeout_ms}
        answer = connection.request(ApiKey.INIT_PRODUCER_ID, wish)
        assert answer["error_code"] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert answer["producer_id"] == -1
    connection.close()


def test_transactions_are_listed_and_described(node: NodeProcess, stream_name: str) -> None:
    connection, producer_id, epoch = begun(node, stream_name)
    producer = transactional(node, f"{stream_name}-open")
    producer.begin_transaction()
    producer.produce(stream_name, b"v")
    producer.flush(_S)
    listed = connection.request(ApiKey.LIST_TRANSACTIONS, {"state_filters": ["Ongoing", "Nonsense"]})
    assert listed["unknown_state_filters"] == ["Nonsense"]
    names = [one["transactional_id"] for one in listed["transaction_states"]]
    assert f"{stream_name}-open" in names
    assert stream_name not in names
    described = connection.request(
        ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [stream_name, f"{stream_name}-open", "nobody"]}
    )["transaction_states"]
    assert [one["transaction_state"] for one in described] == ["Empty", "Ongoing", ""]
    assert described[0]["producer_id"] == producer_id
    assert described[0]["producer_epoch"] == epoch
    assert described[1]["topics"] == [{"topic": stream_name, "partitions": [0]}]
    assert described[2]["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    wish = {"topics": [{"name": stream_name, "partition_indexes": [0, 7]}]}
    there, not_there = connection.request(ApiKey.DESCRIBE_PRODUCERS, wish)["topics"][0]["partitions"]
    assert [one["current_txn_start_offset"] for one in there["active_producers"]] == [0]
    assert not_there["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.abort_transaction(_S)
    connection.close()


def ask(connection: BrokerConnection, api: ApiKey, version: int, message: dict[str, Any]) -> dict[str, Any]:
    """A request of a version of the test's choice."""
    sent = connection.send(api, [REQUESTS[api].encode(version, message)], version=version)
    _, frame, start = connection.receive(sent)
    return RESPONSES[api].decode(version, frame, start)


def produce(
    connection: BrokerConnection, name: str, stream: str, identity: tuple[int, int], sequence: int, *, version: int = 12
) -> int:
    """One record in a transaction; the answer's error."""
    batch = encode(
        [BatchInput(1, None, b"v")],
        attributes=TRANSACTIONAL, producer_id=identity[0], producer_epoch=identity[1], base_sequence=sequence,
    )  # fmt: skip
    request = ProduceRequest(name, -1, 30_000, [TopicData(stream, [PartitionData(0, memoryview(batch))])])
    sent = connection.send(ApiKey.PRODUCE, encode_produce(version, request), version=version)
    _, frame, start = connection.receive(sent)
    return decode_produce(version, frame, start)[0].partitions[0].error_code


def test_partitions_join_by_being_written_to_and_ends_bump_the_epoch(node: NodeProcess, stream_name: str) -> None:
    connection, producer_id, epoch = begun(node, stream_name)
    connection.request(ApiKey.METADATA, {"topics": [{"name": stream_name}], "allow_auto_topic_creation": True})
    features = ask(connection, ApiKey.API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"})
    levels = {one["name"]: one["max_version_level"] for one in features["finalized_features"]}
    assert levels["transaction.version"] == 2
    older = ask(connection, ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"})
    assert all(one["min_version"] > 0 for one in older["supported_features"])
    for committed in (True, False, True):
        assert produce(connection, stream_name, stream_name, (producer_id, epoch), 0) == 0
        wish = {
            "transactional_id": stream_name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": committed,
        }
        for _ in range(2):  # the second is a repetition, as after a lost answer
            ended = connection.request(ApiKey.END_TXN, wish)
            assert (ended["error_code"], ended["producer_id"], ended["producer_epoch"]) == (0, producer_id, epoch + 1)
        assert (
            produce(connection, stream_name, stream_name, (producer_id, epoch), 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        )
        epoch += 1
    assert values(node, stream_name) == [b"v", b"v"]
    connection.close()


def test_what_is_refused_has_the_number_that_the_version_knows(node: NodeProcess, stream_name: str) -> None:
    connection, producer_id, epoch = begun(node, stream_name)
    connection.request(ApiKey.METADATA, {"topics": [{"name": stream_name}], "allow_auto_topic_creation": True})
    identity = (producer_id, epoch)
    assert produce(connection, stream_name, stream_name, identity, 0, version=10) == ErrorCode.INVALID_TXN_STATE
    assert produce(connection, stream_name, stream_name, identity, 0, version=11) == ErrorCode.TRANSACTION_ABORTABLE
    stale = {"transactional_id": stream_name, "producer_id": producer_id, "producer_epoch": epoch + 7}
    fenced, older = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    for api, first, more in (
        (ApiKey.END_TXN, 2, {"committed": True}),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2, {"group_id": "g"}),
        (ApiKey.INIT_PRODUCER_ID, 4, {"transaction_timeout_ms": 1000}),
    ):
        low = 3 if api is ApiKey.INIT_PRODUCER_ID else 0
        for version, expected in ((low, older), (first, fenced)):
            assert ask(connection, api, version, stale | more)["error_code"] == expected
    offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    commit = stale | {
        "producer_epoch": epoch,
        "group_id": "g",
        "topics": [{"name": stream_name, "partitions": offsets}],
    }
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    unknown: dict[str, Any] = {"generation_id": 3, "member_id": "m"}  # told once the transaction is seen to be one
    for version, more, expected in (
        (3, {}, ErrorCode.INVALID_TXN_STATE),
        (3, unknown, ErrorCode.INVALID_TXN_STATE),
        (4, {}, ErrorCode.TRANSACTION_ABORTABLE),
        (5, {}, ErrorCode.NONE),
        (5, unknown, ErrorCode.ILLEGAL_GENERATION),
    ):
        answer = ask(connection, ApiKey.TXN_OFFSET_COMMIT, version, {**commit, **member, **more})
        assert answer["topics"][0]["partitions"][0]["error_code"] == expected
    partitions = [{"name": stream_name, "partitions": [0]}, {"name": "nowhere", "partitions": [0]}]
    wish = {f"v3_and_below_{name}": value for name, value in stale.items()} | {"v3_and_below_topics": partitions}
    added = ask(connection, ApiKey.ADD_PARTITIONS_TO_TXN, 3, wish)["results_by_topic_v3_and_below"]
    codes = [topic["results_by_partition"][0]["partition_error_code"] for topic in added]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for broken in ({"producer_id": 5}, {"producer_epoch": 5}, {"transactional_id": ""}):
        wish = {"transactional_id": stream_name, "transaction_timeout_ms": 1000, **broken}
        assert connection.request(ApiKey.INIT_PRODUCER_ID, wish)["error_code"] == ErrorCode.INVALID_REQUEST
    connection.close()
