"""aiokafka: an event loop in a thread of its own, which the calls wait for."""

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import Any

from tests.compat.drivers.serving import Lacks, Talk, raw, serve, text
from tests.untyped import untyped

aiokafka = untyped("aiokafka")
errors = untyped("aiokafka.errors")
admin = untyped("aiokafka.admin")

_WAIT_S = 60


class Driver:
    def __init__(self, address: str) -> None:
        self._common = {"bootstrap_servers": address}
        self._producers: dict[str, Any] = {}
        self._sent: dict[str, list[Any]] = {}
        self._members: dict[str, Talk] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(_WAIT_S)

    # -- producing ----------------------------------------------------------------------------------

    def do_produce(
        self, topic: str, records: list[dict[str, Any]], compression: str = "none", acks: int = -1
    ) -> list[int]:
        async def run() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                compression_type=None if compression == "none" else compression, acks="all" if acks == -1 else acks,
                linger_ms=20, max_request_size=1048588, **self._common,
            )  # fmt: skip
            await producer.start()
            try:
                found = [await future for future in await _send(producer, topic, records)]
            finally:
                await producer.stop()
            return [-1 if one is None else one.offset for one in found]

        found: list[int] = self._run(run())
        return found

    def do_open(self, producer: str, idempotent: bool = False, transactional: str = "") -> None:
        async def run() -> None:
            made = aiokafka.AIOKafkaProducer(
                enable_idempotence=idempotent or bool(transactional), transactional_id=transactional or None,
                **self._common,
            )  # fmt: skip
            await made.start()
            self._producers[producer] = made

        self._sent[producer] = []
        self._run(run())

    def do_send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> None:
        self._sent[producer] += self._run(_send(self._producers[producer], topic, records))

    def do_flush(self, producer: str) -> list[int]:
        async def run() -> list[int]:
            return [(await future).offset for future in self._sent[producer]]

        offsets: list[int] = self._run(run())
        self._sent[producer].clear()
        return offsets

    def do_close(self, producer: str) -> None:
        self._run(self._producers.pop(producer).stop())

    def do_drop(self, producer: str) -> None:
        del self._producers[producer]

    def do_begin(self, producer: str) -> None:
        self._run(self._producers[producer].begin_transaction())

    def do_commit(self, producer: str) -> None:
        self._run(self._producers[producer].commit_transaction())

    def do_abort(self, producer: str) -> None:
        self._run(self._producers[producer].abort_transaction())

    def do_send_offsets(self, producer: str, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {aiokafka.TopicPartition(topic, partition): offset}
        self._run(self._producers[producer].send_offsets_to_transaction(offsets, group))

    # -- reading ------------------------------------------------------------------------------------

    def do_read(
        self, topic: str, partition: int, offset: int, count: int, committed: bool = False
    ) -> list[dict[str, Any]]:
        async def run() -> list[dict[str, Any]]:
            isolation = "read_committed" if committed else "read_uncommitted"
            consumer = aiokafka.AIOKafkaConsumer(enable_auto_commit=False, isolation_level=isolation, **self._common)
            await consumer.start()
            try:
                at = aiokafka.TopicPartition(topic, partition)
                consumer.assign([at])
                consumer.seek(at, offset)
                found: list[dict[str, Any]] = []
                while len(found) < count:
                    found.append(_read(await consumer.getone()))
                return found
            finally:
                await consumer.stop()

        found: list[dict[str, Any]] = self._run(run())
        return found

    def do_offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        async def run() -> int | None:
            consumer = aiokafka.AIOKafkaConsumer(**self._common)
            await consumer.start()
            try:
                at = aiokafka.TopicPartition(topic, partition)
                found = (await consumer.offsets_for_times({at: timestamp}))[at]
                return None if found is None else int(found.offset)
            finally:
                await consumer.stop()

        found: int | None = self._run(run())
        return found

    # -- groups -------------------------------------------------------------------------------------

    def do_join(
        self, member: str, group: str, topic: str, protocol: str = "classic", strategy: str = "range",
        instance: str = "", session_ms: int = 10_000,
    ) -> None:  # fmt: skip
        if protocol != "classic":
            raise Lacks("it speaks the classic protocol only")
        if strategy != "range":
            raise Lacks("it has no cooperative assignor")
        assignor = untyped("aiokafka.coordinator.assignors.range").RangePartitionAssignor
        settings = self._common | {
            "group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False,
            "partition_assignment_strategy": (assignor,), "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": 300, "metadata_max_age_ms": 500, "group_instance_id": instance or None,
        }  # fmt: skip
        talk = self._members[member] = Talk(member)
        asyncio.run_coroutine_threadsafe(_member(settings, topic, talk), self._loop)

    def do_commit_member(self, member: str) -> None:
        self._members[member].call("commit")

    def do_leave(self, member: str) -> None:
        self._members.pop(member).call("leave")

    # -- administration -----------------------------------------------------------------------------

    def _admin(self, name: str, *arguments: Any) -> Any:
        async def run() -> Any:
            client = admin.AIOKafkaAdminClient(**self._common)
            await client.start()
            try:
                return await getattr(client, name)(*arguments)
            finally:
                await client.close()

        return self._run(run())

    def do_create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        answer = self._admin("create_topics", [admin.NewTopic(topic, partitions, 1, topic_configs=config)])
        _check(answer.topic_errors[0][1])

    def do_delete_topic(self, topic: str) -> None:
        _check(self._admin("delete_topics", [topic]).topic_error_codes[0][1])

    def do_partitions(self, topic: str) -> int:
        (found,) = self._admin("describe_topics", [topic])
        return len(found["partitions"])

    def do_grow(self, topic: str, partitions: int) -> None:
        answer = self._admin("create_partitions", {topic: admin.NewPartitions(partitions)})
        _check(answer.topic_errors[0][1])

    def do_configs(self, topic: str) -> dict[str, str]:
        asked = admin.config_resource.ConfigResource(admin.config_resource.ConfigResourceType.TOPIC, topic)
        (answer,) = self._admin("describe_configs", [asked])
        _check(answer.resources[0][0])
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}

    def do_set_config(self, **_: object) -> None:
        raise Lacks("it has AlterConfigs only")

    def do_replace_configs(self, topic: str, config: dict[str, str]) -> None:
        resource = admin.config_resource.ConfigResource(admin.config_resource.ConfigResourceType.TOPIC, topic, config)
        answer = self._admin("alter_configs", [resource])[0]
        _check(answer.resources[0][0])

    def do_delete_records(self, topic: str, partition: int, before: int) -> int:
        at = aiokafka.TopicPartition(topic, partition)
        return int(self._admin("delete_records", {at: admin.RecordsToDelete(before)})[at])

    def do_groups(self) -> list[str]:
        return [one[0] for one in self._admin("list_consumer_groups")]

    def do_group(self, group: str) -> dict[str, Any]:
        (answer,) = self._admin("describe_consumer_groups", [group])
        found = answer.groups[0]
        return {"state": found[2].lower(), "members": len(found[5])}

    def do_committed(self, group: str, topic: str, partition: int) -> int:
        found = self._admin("list_consumer_group_offsets", group)
        return int(found[aiokafka.TopicPartition(topic, partition)].offset)

    def do_delete_group(self, **_: object) -> None:
        raise Lacks("it cannot delete groups")


def _check(code: int) -> None:
    if code:
        raise errors.for_code(code)


async def _send(producer: Any, topic: str, records: list[dict[str, Any]]) -> list[Any]:
    return [
        await producer.send(
            topic, raw(one["value"]), raw(one["key"]), one["partition"], one["timestamp"],
            [(name, raw(value)) for name, value in one["headers"]],
        ) for one in records
    ]  # fmt: skip


def _read(one: Any) -> dict[str, Any]:
    return {
        "offset": one.offset, "key": text(one.key), "value": text(one.value), "timestamp": one.timestamp,
        "headers": [[name, text(value)] for name, value in one.headers],
    }  # fmt: skip


async def _member(settings: dict[str, Any], topic: str, talk: Talk) -> None:
    consumer = aiokafka.AIOKafkaConsumer(**settings)
    await consumer.start()

    def revoked(partitions: Any) -> None:
        talk.lost([one.partition for one in partitions])

    def assigned(partitions: Any) -> None:
        talk.holds({one.partition for one in partitions})

    names = {"on_partitions_revoked": revoked, "on_partitions_assigned": assigned}
    listener = type("Listener", (aiokafka.ConsumerRebalanceListener,), {
        name: staticmethod(function) for name, function in names.items()
    })()  # fmt: skip
    consumer.subscribe([topic], listener=listener)
    while True:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            for one in batch:
                talk.record(one.partition, one.offset, one.value)
        call = talk.next_call()
        if call is None:
            continue
        what, done = call
        try:
            if what == "commit":
                await consumer.commit()
            else:
                await consumer.stop()
        except errors.KafkaError as error:
            done(error)
        else:
            done(None)
        if what == "leave":
            return


if __name__ == "__main__":
    serve("aiokafka", aiokafka.__version__, Driver(sys.argv[1]))
