"""Where a setting's name is Kafka's, so is its default, or the catalogue says what Kafka's is and why ours is another.

The list is Apache Kafka's documentation of its broker and topic configs, version 4.0, and what a broker of version 4.4
answers when it is asked; None is its `null`.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from duramen.base.catalogue.catalogue import BROKER, GROUP, STREAM
from duramen.base.settings import Setting, Value

NO_BOUND: Final = 9223372036854775807

BROKER_DEFAULTS: Final[Mapping[str, Value | None]] = {
    "node.id": None,
    "broker.rack": None,
    "broker.heartbeat.interval.ms": 2000,
    "broker.session.timeout.ms": 9000,
    "auto.leader.rebalance.enable": True,
    "leader.imbalance.check.interval.seconds": 300,
    "replica.lag.time.max.ms": 30_000,
    "leader.replication.throttled.rate": NO_BOUND,
    "auto.create.topics.enable": True,
    "num.partitions": 1,
    "message.max.bytes": 1048588,
    "socket.request.max.bytes": 104857600,
    "fetch.max.bytes": 57671680,
    "max.incremental.fetch.session.cache.slots": 1000,
    "max.request.partition.size.limit": 2000,
    "connections.max.idle.ms": 600000,
    "log.cleanup.policy": "delete",
    "log.retention.ms": None,
    "log.retention.bytes": -1,
    "log.segment.bytes": 1073741824,
    "log.roll.ms": None,
    "log.segment.delete.delay.ms": 60000,
    "log.flush.interval.messages": NO_BOUND,
    "log.flush.interval.ms": None,
    "log.retention.check.interval.ms": 300000,
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 15000,
    "log.cleaner.dedupe.buffer.size": 134217728,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308,
    "log.cleaner.delete.retention.ms": 86400000,
    "log.cleaner.min.cleanable.ratio": 0.5,
    "log.cleaner.min.compaction.lag.ms": 0,
    "log.cleaner.max.compaction.lag.ms": NO_BOUND,
    "log.message.timestamp.type": "CreateTime",
    "log.message.timestamp.before.max.ms": NO_BOUND,
    "log.message.timestamp.after.max.ms": 3600000,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "max.decompressed.message.bytes": 2147483639,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "log.roll.jitter.ms": None,
    "quota.window.num": 11,
    "quota.window.size.seconds": 1,
    "group.initial.rebalance.delay.ms": 3000,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1800000,
    "group.max.size": 2147483647,
    "group.consumer.max.size": 2147483647,
    "group.consumer.assignors": "uniform,range",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.session.timeout.ms": 45000,
    "group.consumer.min.session.timeout.ms": 45000,
    "group.consumer.max.session.timeout.ms": 60000,
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.min.heartbeat.interval.ms": 5000,
    "group.consumer.max.heartbeat.interval.ms": 15000,
    "offsets.topic.num.partitions": 50,
    "offsets.retention.minutes": 10080,
    "offsets.retention.check.interval.ms": 600000,
    "offset.metadata.max.bytes": 4096,
    "transaction.max.timeout.ms": 900000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3600000,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.segment.bytes": 104857600,
    "transactional.id.expiration.ms": 604800000,
    "producer.id.expiration.ms": 86400000,
    "group.share.delivery.count.limit": 5,
    "group.share.min.delivery.count.limit": 2,
    "group.share.max.delivery.count.limit": 10,
    "group.share.record.lock.duration.ms": 30000,
    "group.share.min.record.lock.duration.ms": 15000,
    "group.share.max.record.lock.duration.ms": 60000,
    "group.share.partition.max.record.locks": 2000,
    "group.share.min.partition.max.record.locks": 100,
    "group.share.max.partition.max.record.locks": 4000,
    "group.share.session.timeout.ms": 45000,
    "group.share.min.session.timeout.ms": 45000,
    "group.share.max.session.timeout.ms": 60000,
    "group.share.heartbeat.interval.ms": 5000,
    "group.share.min.heartbeat.interval.ms": 5000,
    "group.share.max.heartbeat.interval.ms": 15000,
    "group.share.max.size": 200,
    "group.share.max.share.sessions": 2000,
    "share.coordinator.state.topic.num.partitions": 50,
    "share.coordinator.snapshot.update.records.per.snapshot": 500,
    "share.coordinator.state.topic.prune.interval.ms": 300000,
}

# Apache Kafka 4.4: two of them are newer than 4.0.
GROUP_DEFAULTS: Final[Mapping[str, Value | None]] = {
    "consumer.session.timeout.ms": 45000,
    "consumer.heartbeat.interval.ms": 5000,
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.record.lock.duration.ms": 30000,
    "share.delivery.count.limit": 5,
    "share.partition.max.record.locks": 2000,
    "share.heartbeat.interval.ms": 5000,
    "share.session.timeout.ms": 45000,
    "share.renew.acknowledge.enable": True,
}

TOPIC_DEFAULTS: Final[Mapping[str, Value | None]] = {
    "cleanup.policy": "delete",
    "retention.ms": 604800000,
    "retention.bytes": -1,
    "segment.bytes": 1073741824,
    "segment.ms": 604800000,
    "file.delete.delay.ms": 60000,
    "max.message.bytes": 1048588,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": NO_BOUND,
    "message.timestamp.after.max.ms": 3600000,
    "compression.type": "producer",
    "min.insync.replicas": 1,
    "delete.retention.ms": 86400000,
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": NO_BOUND,
    "flush.messages": NO_BOUND,
    "flush.ms": NO_BOUND,
    "index.interval.bytes": 4096,
    "segment.index.bytes": 10485760,
    "segment.jitter.ms": 0,
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "max.decompressed.message.bytes": 2147483639,
    "preallocate": False,
    "unclean.leader.election.enable": False,
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
    "remote.storage.enable": False,
    "remote.log.copy.disable": False,
    "remote.log.delete.on.disable": False,
    "local.retention.ms": -2,
    "local.retention.bytes": -2,
}


@pytest.mark.parametrize(
    ("catalogue", "defaults"),
    [(BROKER, BROKER_DEFAULTS), (STREAM, TOPIC_DEFAULTS), (GROUP, GROUP_DEFAULTS)],
    ids=["broker", "topic", "group"],
)
def test_defaults_are_kafkas(catalogue: Mapping[str, Setting], defaults: Mapping[str, Value | None]) -> None:
    ours = {name: setting for name, setting in catalogue.items() if setting.kafka}
    assert set(ours) == set(defaults)
    different = [name for name, setting in ours.items() if repr(setting.default) != repr(defaults[name])]
    assert different == [name for name, setting in ours.items() if setting.deviation]
    for setting in catalogue.values():
        assert bool(setting.deviation) == bool(setting.kafka_default)
