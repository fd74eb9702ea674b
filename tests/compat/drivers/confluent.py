"""confluent-kafka: librdkafka from Python."""

import sys
from functools import partial
from typing import Any

from tests.compat.drivers.serving import Talk, member_thread, raw, serve, text
from tests.untyped import untyped

kafka = untyped("confluent_kafka")
admin = untyped("confluent_kafka.admin")

_WAIT_S = 60


class Producing:
    """A producer and what it was told of its records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.producer = kafka.Producer(settings)
        self.sent = 0
        self.offsets: dict[int, int] = {}
        self.errors: list[str] = []

    def send(self, topic: str, records: list[dict[str, Any]]) -> None:
        """Hand records over."""
        for one in records:
            options = {} if one["timestamp"] is None else {"timestamp": one["timestamp"]}
            headers = [(name, raw(value)) for name, value in one["headers"]]
            self.producer.produce(
                topic, raw(one["value"]), raw(one["key"]), partition=one["partition"], headers=headers,
                on_delivery=partial(self._delivered, self.sent), **options,
            )  # fmt: skip
            self.sent += 1

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.offsets[number] = message.offset()

    def flush(self) -> list[int]:
        """Wait for all; their offsets."""
        left = self.producer.flush(_WAIT_S)
        if left or self.errors:
            raise RuntimeError(f"{left} records were not delivered, {self.errors}")
        offsets = [-1 if (found := self.offsets.get(number)) is None else found for number in range(self.sent)]
        self.sent = 0
        self.offsets.clear()
        return offsets

    def forget(self) -> None:
        """Forget what an aborted transaction did not send."""
        self.producer.flush(_WAIT_S)
        self.sent = 0
        self.offsets.clear()
        self.errors.clear()


class Driver:
    def __init__(self, address: str) -> None:
        self._common = {"bootstrap.servers": address}
        self._producers: dict[str, Producing] = {}
        self._members: dict[str, Talk] = {}
        self._admin = admin.AdminClient(self._common)

    # -- producing ----------------------------------------------------------------------------------

    def do_produce(
        self, topic: str, records: list[dict[str, Any]], compression: str = "none", acks: int = -1
    ) -> list[int]:
        producing = Producing(
            self._common
            | {"compression.codec": compression, "acks": acks, "linger.ms": 20, "message.max.bytes": 1048588}
        )
        producing.send(topic, records)
        return producing.flush()

    def do_open(self, producer: str, idempotent: bool = False, transactional: str = "") -> None:
        settings = self._common | {
            "enable.idempotence": idempotent or bool(transactional),
            "message.timeout.ms": 60_000,
        }
        settings |= {"retry.backoff.max.ms": 200, "reconnect.backoff.max.ms": 200}
        if transactional:
            settings |= {"transactional.id": transactional, "transaction.timeout.ms": 60_000}
        self._producers[producer] = Producing(settings)
        if transactional:
            self._producers[producer].producer.init_transactions(_WAIT_S)

    def do_send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> None:
        self._producers[producer].send(topic, records)

    def do_flush(self, producer: str) -> list[int]:
        return self._producers[producer].flush()

    def do_close(self, producer: str) -> None:
        self._producers.pop(producer).flush()

    def do_drop(self, producer: str) -> None:
        del self._producers[producer]

    def do_begin(self, producer: str) -> None:
        self._producers[producer].producer.begin_transaction()

    def do_commit(self, producer: str) -> None:
        self._producers[producer].producer.commit_transaction(_WAIT_S)

    def do_abort(self, producer: str) -> None:
        self._producers[producer].producer.abort_transaction(_WAIT_S)
        self._producers[producer].forget()

    def do_send_offsets(self, producer: str, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = kafka.Consumer(self._common | {"group.id": group})
        try:
            offsets = [kafka.TopicPartition(topic, partition, offset)]
            metadata = consumer.consumer_group_metadata()
            self._producers[producer].producer.send_offsets_to_transaction(offsets, metadata, _WAIT_S)
        finally:
            consumer.close()

    # -- reading ------------------------------------------------------------------------------------

    def do_read(
        self, topic: str, partition: int, offset: int, count: int, committed: bool = False
    ) -> list[dict[str, Any]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        settings = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": isolation}
        consumer = kafka.Consumer(self._common | settings)
        try:
            consumer.assign([kafka.TopicPartition(topic, partition, offset)])
            found: list[dict[str, Any]] = []
            while len(found) < count:
                messages = consumer.consume(count - len(found), timeout=_WAIT_S)
                if not messages:
                    raise RuntimeError(f"{count - len(found)} records did not come")
                found += map(_read, messages)
            return found
        finally:
            consumer.close()

    def do_offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        consumer = kafka.Consumer(self._common | {"group.id": "unused"})
        try:
            (found,) = consumer.offsets_for_times([kafka.TopicPartition(topic, partition, timestamp)], _WAIT_S)
            return int(found.offset)
        finally:
            consumer.close()

    # -- groups -------------------------------------------------------------------------------------

    def do_join(
        self, member: str, group: str, topic: str, protocol: str = "classic", strategy: str = "range",
        instance: str = "", session_ms: int = 10_000,
    ) -> None:  # fmt: skip
        settings = self._common | {
            "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.max.ms": 200,
        }  # fmt: skip
        if protocol == "consumer":
            settings |= {"group.protocol": "consumer"}
        else:
            settings |= {"partition.assignment.strategy": strategy, "session.timeout.ms": session_ms}
            settings |= {"heartbeat.interval.ms": 300}
        if instance:
            settings |= {"group.instance.id": instance}
        self._members[member] = member_thread(partial(_member, settings, topic), member)

    def do_commit_member(self, member: str) -> None:
        self._members[member].call("commit")

    def do_leave(self, member: str) -> None:
        self._members.pop(member).call("leave")

    # -- administration -----------------------------------------------------------------------------

    def do_create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        _done(self._admin.create_topics([admin.NewTopic(topic, partitions, 1, config=config)]))

    def do_delete_topic(self, topic: str) -> None:
        _done(self._admin.delete_topics([topic]))

    def do_partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, _WAIT_S).topics[topic].partitions)

    def do_grow(self, topic: str, partitions: int) -> None:
        _done(self._admin.create_partitions([admin.NewPartitions(topic, partitions)]))

    def do_configs(self, topic: str) -> dict[str, str]:
        found = _done(self._admin.describe_configs([admin.ConfigResource("topic", topic)]))
        return {name: entry.value for name, entry in found.items()}

    def do_set_config(self, topic: str, name: str, value: str) -> None:
        change = admin.AlterConfigOpType.SET
        entry = admin.ConfigEntry(name, value, incremental_operation=change)
        resource = admin.ConfigResource("topic", topic, incremental_configs=[entry])
        _done(self._admin.incremental_alter_configs([resource]))

    def do_replace_configs(self, topic: str, config: dict[str, str]) -> None:
        _done(self._admin.alter_configs([admin.ConfigResource("topic", topic, set_config=config)]))

    def do_delete_records(self, topic: str, partition: int, before: int) -> int:
        return int(_done(self._admin.delete_records([kafka.TopicPartition(topic, partition, before)])).low_watermark)

    def do_groups(self) -> list[str]:
        return [one.group_id for one in self._admin.list_consumer_groups().result(_WAIT_S).valid]

    def do_group(self, group: str) -> dict[str, Any]:
        found = _done(self._admin.describe_consumer_groups([group]))
        return {"state": found.state.name.lower(), "members": len(found.members)}

    def do_committed(self, group: str, topic: str, partition: int) -> int:
        asked = kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(topic, partition)])
        found = _done(self._admin.list_consumer_group_offsets([asked]))
        return int(found.topic_partitions[0].offset)

    def do_delete_group(self, group: str) -> None:
        _done(self._admin.delete_consumer_groups([group]))


def _done(futures: Any) -> Any:
    (future,) = futures.values()
    return future.result(_WAIT_S)


def _read(message: Any) -> dict[str, Any]:
    if message.error() is not None:
        raise kafka.KafkaException(message.error())
    headers = [[name, text(value)] for name, value in message.headers() or ()]
    return {
        "offset": message.offset(), "key": text(message.key()), "value": text(message.value()), "headers": headers,
        "timestamp": message.timestamp()[1],
    }  # fmt: skip


def _member(settings: dict[str, Any], topic: str, talk: Talk) -> None:
    consumer = kafka.Consumer(settings)

    def revoked(_: Any, partitions: list[Any]) -> None:
        talk.lost([one.partition for one in partitions])

    consumer.subscribe([topic], on_revoke=revoked, on_lost=revoked)
    while True:
        messages = consumer.consume(500, timeout=0.1)
        talk.holds({one.partition for one in consumer.assignment()})
        for message in messages:
            # A topic that is gone for a while is told as an error and no end of reading.
            if message.error() is None:
                talk.record(message.partition(), message.offset(), message.value())
        call = talk.next_call()
        if call is None:
            continue
        what, done = call
        try:
            if what == "commit":
                consumer.commit(asynchronous=False)
            else:
                consumer.close()
        except kafka.KafkaException as error:
            done(error)
        else:
            done(None)
        if what == "leave":
            return


if __name__ == "__main__":
    serve("confluent-kafka", f"{kafka.__version__} (librdkafka {kafka.libversion()[0]})", Driver(sys.argv[1]))
