"""kafka-python, which needs packages of their own for other codecs than gzip."""

import sys
from functools import partial
from typing import Any

from tests.compat.drivers.serving import Lacks, Talk, member_thread, raw, serve, text
from tests.untyped import untyped

kafka = untyped("kafka")
errors = untyped("kafka.errors")
admin = untyped("kafka.admin")
structs = untyped("kafka.structs")
codec = untyped("kafka.codec")

_WAIT_S = 60
_STRATEGIES = {
    "range": "range.RangePartitionAssignor",
    "cooperative-sticky": "cooperative_sticky.CooperativeStickyAssignor",
}
_PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}


class Driver:
    def __init__(self, address: str) -> None:
        self._common = {"bootstrap_servers": address}
        self._producers: dict[str, Any] = {}
        self._sent: dict[str, list[Any]] = {}
        self._members: dict[str, Talk] = {}
        self._admin = kafka.KafkaAdminClient(**self._common)

    # -- producing ----------------------------------------------------------------------------------

    def do_produce(
        self, topic: str, records: list[dict[str, Any]], compression: str = "none", acks: int = -1
    ) -> list[int]:
        if compression in _PACKAGES and not getattr(codec, f"has_{compression}")():
            raise Lacks(f"its codec for {compression} is the package {_PACKAGES[compression]}, which is not installed")
        producer = kafka.KafkaProducer(
            compression_type=None if compression == "none" else compression, acks=acks, linger_ms=20,
            enable_idempotence=False, max_request_size=1048588, **self._common,
        )  # fmt: skip
        try:
            return [future.get(_WAIT_S).offset for future in _send(producer, topic, records)]
        finally:
            producer.close()

    def do_open(self, producer: str, idempotent: bool = False, transactional: str = "") -> None:
        made = kafka.KafkaProducer(
            enable_idempotence=idempotent or bool(transactional), transactional_id=transactional or None,
            reconnect_backoff_max_ms=200, **self._common,
        )  # fmt: skip
        self._producers[producer] = made
        self._sent[producer] = []
        if transactional:
            made.init_transactions()

    def do_send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> None:
        self._sent[producer] += _send(self._producers[producer], topic, records)

    def do_flush(self, producer: str) -> list[int]:
        offsets = [future.get(_WAIT_S).offset for future in self._sent[producer]]
        self._sent[producer].clear()
        return offsets

    def do_close(self, producer: str) -> None:
        self._producers.pop(producer).close()

    def do_drop(self, producer: str) -> None:
        self._producers.pop(producer).close(timeout=0)

    def do_begin(self, producer: str) -> None:
        self._producers[producer].begin_transaction()

    def do_commit(self, producer: str) -> None:
        self._producers[producer].commit_transaction()

    def do_abort(self, producer: str) -> None:
        self._producers[producer].abort_transaction()

    def do_send_offsets(self, producer: str, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {kafka.TopicPartition(topic, partition): structs.OffsetAndMetadata(offset, "", -1)}
        self._producers[producer].send_offsets_to_transaction(offsets, structs.ConsumerGroupMetadata(group))

    # -- reading ------------------------------------------------------------------------------------

    def do_read(
        self, topic: str, partition: int, offset: int, count: int, committed: bool = False
    ) -> list[dict[str, Any]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = kafka.KafkaConsumer(enable_auto_commit=False, isolation_level=isolation, **self._common)
        try:
            at = kafka.TopicPartition(topic, partition)
            consumer.assign([at])
            consumer.seek(at, offset)
            found: list[dict[str, Any]] = []
            while len(found) < count:
                batches = consumer.poll(_WAIT_S * 1000, max_records=count - len(found))
                if not batches:
                    raise RuntimeError(f"{count - len(found)} records did not come")
                found += [_read(one) for batch in batches.values() for one in batch]
            return found
        finally:
            consumer.close()

    def do_offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = kafka.KafkaConsumer(**self._common)
        try:
            at = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({at: timestamp})[at]
            return None if found is None else int(found.offset)
        finally:
            consumer.close()

    # -- groups -------------------------------------------------------------------------------------

    def do_join(
        self, member: str, group: str, topic: str, protocol: str = "classic", strategy: str = "range",
        instance: str = "", session_ms: int = 10_000,
    ) -> None:  # fmt: skip
        if protocol != "classic":
            raise Lacks("it speaks the classic protocol only")
        module, _, name = _STRATEGIES[strategy].partition(".")
        assignor = getattr(untyped(f"kafka.coordinator.assignors.{module}"), name)
        settings = self._common | {
            "group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False,
            "partition_assignment_strategy": (assignor,), "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": 300, "metadata_max_age_ms": 500, "group_instance_id": instance or None,
            "reconnect_backoff_max_ms": 200,
        }  # fmt: skip
        self._members[member] = member_thread(partial(_member, settings, topic), member)

    def do_commit_member(self, member: str) -> None:
        self._members[member].call("commit")

    def do_leave(self, member: str) -> None:
        self._members.pop(member).call("leave")

    # -- administration -----------------------------------------------------------------------------

    def do_create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": config}})

    def do_delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def do_partitions(self, topic: str) -> int:
        (found,) = self._admin.describe_topics([topic])
        return len(found["partitions"])

    def do_grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions({topic: partitions})

    def do_configs(self, topic: str) -> dict[str, str]:
        asked = admin.ConfigResource("TOPIC", topic, None)
        found = self._admin.describe_configs([asked], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    def do_set_config(self, topic: str, name: str, value: str) -> None:
        resource = admin.ConfigResource("TOPIC", topic, {name: value})
        _ok(self._admin.alter_configs([resource], raise_on_unknown=False)["topic"][topic])

    def do_replace_configs(self, **_: object) -> None:
        raise Lacks("with AlterConfigs it sends the topic's other configs along")

    def do_delete_records(self, topic: str, partition: int, before: int) -> int:
        at = kafka.TopicPartition(topic, partition)
        return int(self._admin.delete_records({at: before})[at]["low_watermark"])

    def do_groups(self) -> list[str]:
        return [one["group_id"] for one in self._admin.list_groups()]

    def do_group(self, group: str) -> dict[str, Any]:
        found = self._admin.describe_groups([group])[group]
        return {"state": found["group_state"].lower(), "members": len(found["members"])}

    def do_committed(self, group: str, topic: str, partition: int) -> int:
        found = self._admin.list_group_offsets({group: None})
        return int(found[group][kafka.TopicPartition(topic, partition)].offset)

    def do_delete_group(self, group: str) -> None:
        _ok(self._admin.delete_groups([group])[group])


def _ok(said: str) -> None:
    if said != "OK":
        raise RuntimeError(said)


def _send(producer: Any, topic: str, records: list[dict[str, Any]]) -> list[Any]:
    if any(value is None for one in records for _, value in one["headers"]):
        raise Lacks("its producer refuses a header without a value")
    return [
        producer.send(
            topic, raw(one["value"]), key=raw(one["key"]), partition=one["partition"], timestamp_ms=one["timestamp"],
            headers=[(name, raw(value)) for name, value in one["headers"]],
        ) for one in records
    ]  # fmt: skip


def _read(one: Any) -> dict[str, Any]:
    return {
        "offset": one.offset, "key": text(one.key), "value": text(one.value), "timestamp": one.timestamp,
        "headers": [[name, text(value)] for name, value in one.headers],
    }  # fmt: skip


def _poll(consumer: Any, talk: Talk) -> None:
    try:
        batches = consumer.poll(500)
    except errors.KafkaConnectionError:
        batches = {}  # The node is away: an application polls again.
    talk.holds({one.partition for one in consumer.assignment()})
    for batch in batches.values():
        for one in batch:
            talk.record(one.partition, one.offset, one.value)


def _member(settings: dict[str, Any], topic: str, talk: Talk) -> None:
    consumer = kafka.KafkaConsumer(**settings)

    def revoked(partitions: Any) -> None:
        talk.lost([one.partition for one in partitions])

    def ignored(_: Any) -> None:
        pass

    names = {"on_partitions_revoked": revoked, "on_partitions_assigned": ignored, "on_partitions_lost": revoked}
    listener = type("Listener", (kafka.ConsumerRebalanceListener,), {
        name: staticmethod(function) for name, function in names.items()
    })()  # fmt: skip
    consumer.subscribe([topic], listener=listener)
    # Where it learns of the partitions after it has joined, it joins again; short polls on a slow machine never see
    # the end of that (kafka-python 3.0.12).
    while not consumer.partitions_for_topic(topic):
        pass
    while True:
        _poll(consumer, talk)
        call = talk.next_call()
        if call is None:
            continue
        what, done = call
        try:
            if what == "commit":
                consumer.commit()
            else:
                consumer.close()
        except errors.KafkaError as error:
            done(error)
        else:
            done(None)
        if what == "leave":
            return


if __name__ == "__main__":
    serve("kafka-python", kafka.__version__, Driver(sys.argv[1]))
