"""A directory that was made at once is one that a node takes for its own, with records that can be read."""

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from duramen.bench.hoard import BATCH_BYTES, Hoard, make_hoard, stream_name
from duramen.node.process import NodeProcess


def test_every_record_of_a_hoard_can_be_read_and_the_next_follows(tmp_path: Path) -> None:
    hoard = Hoard(streams=2, partitions=2, batches=3)
    make_hoard(tmp_path / "data", hoard)
    assert hoard.size == 12 * BATCH_BYTES
    logs = [path.stat() for path in (tmp_path / "data" / "logs").glob("*/*.log")]
    assert sum(log.st_size for log in logs) > hoard.size
    assert max(log.st_blocks * 512 for log in logs) < BATCH_BYTES / 8, "the files are sparse"
    partitions = [TopicPartition(stream_name(stream), index, 0) for stream in range(2) for index in range(2)]
    for ending in ("stop", "kill"):
        with NodeProcess(tmp_path / "data") as node:
            consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g", "enable.partition.eof": True})
            consumer.assign(partitions)
            offsets: dict[tuple[str | None, int | None], list[int | None]] = {}
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(60)
                assert message is not None
                error = message.error()
                if error is None:
                    assert not any(message.value() or b"x")
                    offsets.setdefault((message.topic(), message.partition()), []).append(message.offset())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ended += 1
            consumer.close()
            assert offsets == {(one.topic, one.partition): [0, 1, 2] for one in partitions}
            if ending == "kill":
                node.kill()
        log = node.log_path.read_text()
        assert "WARNING" not in log, log
