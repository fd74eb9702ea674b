"""A standalone node that the code at a commit wrote: `python -m tests.golden.standalone DIRECTORY SOURCE` makes it.

SOURCE is `src` of a checkout. `level2/` was made by the code at commit d2bf9af0, the last one before coordinators had
one runtime, and is never made again.
"""

import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.node.process import NodeProcess
from tests.doors.kafka.sharing import ACCEPT, RELEASE, Given, RawShareConsumer

__all__ = [
    "ARCHIVE", "COMMITTED", "COUNT", "GROUP", "OPEN_ID", "SHARED", "SHARE_GROUP", "STREAM", "TRANSACTIONAL_ID",
    "share_consumer", "standalone",
]  # fmt: skip

ARCHIVE: Final = "standalone.tar.gz"
STREAM: Final = "orders"
SHARED: Final = "jobs"
GROUP: Final = "golden-group"
SHARE_GROUP: Final = "golden-share-group"
TRANSACTIONAL_ID: Final = "golden-transaction"
OPEN_ID: Final = "golden-transaction-open"
COUNT: Final = 100
COMMITTED: Final = 17
_LONGEST_MS: Final = (1 << 31) - 1
_SETTINGS: Final = {
    "wal.file.bytes": 1 << 20, "wal.max.bytes": 8 << 20, "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2, "share.coordinator.state.topic.num.partitions": 2,
    "offsets.retention.minutes": 1 << 22, "transactional.id.expiration.ms": _LONGEST_MS,
    "transaction.max.timeout.ms": _LONGEST_MS, "group.initial.rebalance.delay.ms": 0,
}  # fmt: skip
_LEFT_OUT: Final = ("./views/LOG", "./run")
_OLD: Final = "import sys; sys.path.insert(0, {source!r}); from duramen.cli.main import main; sys.exit(main())"


def standalone(
    directory: Path, source: Path | None = None, settings: Mapping[str, object] | None = None
) -> NodeProcess:
    """The node with its data in `directory`, and the code in `source` or this one's."""
    program = ("-m", "duramen") if source is None else ("-c", _OLD.format(source=str(source)))
    return NodeProcess(directory, {**_SETTINGS, **(settings or {})}, program)


def share_consumer(node: NodeProcess, member_id: str) -> RawShareConsumer:
    """A member of the share group."""
    made = RawShareConsumer(node, SHARE_GROUP, SHARED, member_id)
    made.configure(share_auto_offset_reset="earliest")
    made.join()
    return made


def _write(node: NodeProcess, stream: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True})
    for number in range(count):
        producer.produce(stream, str(number).encode(), partition=0)
    if producer.flush(60):
        raise AssertionError("not all records were taken")


def _transactional(node: NodeProcess, id_: str, value: str) -> tuple[Producer, Consumer]:
    """A transaction with a record and an offset of the group, and its producer."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": GROUP})
    producer = Producer({
        "bootstrap.servers": node.kafka, "transactional.id": id_, "transaction.timeout.ms": _LONGEST_MS,
    })  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(STREAM, value.encode(), partition=0)
    if producer.flush(60):
        raise AssertionError("a record of a transaction was not taken")
    return producer, consumer


def _fill(node: NodeProcess) -> None:
    """Half of it is in checkpoints and views, the rest in the write-ahead log alone."""
    admin = AdminClient({"bootstrap.servers": node.kafka})
    new = [NewTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in (STREAM, SHARED)]
    for made in admin.create_topics(new).values():
        made.result(60)
    for stream in (STREAM, SHARED):
        _write(node, stream, COUNT)
    one = share_consumer(node, "one")
    if len(one.fetch()) != COUNT:
        raise AssertionError("the share consumer got not all records")
    one.say(Given(0, COUNT // 2 - 1, [ACCEPT]))
    one.say(Given(COUNT // 2, COUNT // 2, [RELEASE]))
    one.connection.close()
    for value, offset in (("aborted", 5), ("committed", COMMITTED), ("open", 50)):
        producer, consumer = _transactional(node, OPEN_ID if value == "open" else TRANSACTIONAL_ID, value)
        offsets = [TopicPartition(STREAM, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        if value == "open":
            _write(node, STREAM, 1)
        else:
            (producer.commit_transaction if value == "committed" else producer.abort_transaction)(60)
        consumer.close()
        if value == "aborted":
            if node.stop():
                raise AssertionError("the node did not stop as asked")
            node.restart()


def main(directory: Path, source: Path) -> None:
    """Make the archive."""
    with tempfile.TemporaryDirectory() as temporary:
        node = standalone(Path(temporary) / "node", source)
        try:
            node.start()
            _fill(node)
        finally:
            node.kill()  # with the transaction open, and with what only the write-ahead log has
        directory.mkdir(parents=True, exist_ok=True)
        with tarfile.open(directory / ARCHIVE, "w:gz", compresslevel=9) as archive:
            archive.add(node.data_dir, ".", filter=lambda member: None if member.name in _LEFT_OUT else member)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
