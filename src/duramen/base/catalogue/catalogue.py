"""All settings, as data. The options, environment variables, checks, DescribeConfigs and docs are generated from it.

A setting with a name of Kafka has Kafka's meaning and default. Other names end in their unit.
"""

from collections.abc import Mapping
from types import MappingProxyType

from duramen.base.catalogue.cluster import NODE_SETTINGS as CLUSTER_NODE_SETTINGS
from duramen.base.catalogue.consumers import GROUP_SETTINGS as CONSUMER_GROUP_SETTINGS
from duramen.base.catalogue.consumers import NODE_SETTINGS as CONSUMER_NODE_SETTINGS
from duramen.base.catalogue.inventory import NODE_SETTINGS as INVENTORY_NODE_SETTINGS
from duramen.base.catalogue.keyed import STREAM_SETTINGS as KEYED_SETTINGS
from duramen.base.catalogue.queues import STREAM_SETTINGS as QUEUE_SETTINGS
from duramen.base.catalogue.shares import GROUP_SETTINGS, NODE_SETTINGS
from duramen.base.catalogue.tables import RETENTION_SETTINGS as TABLE_RETENTION
from duramen.base.catalogue.tables import STREAM_SETTINGS as TABLE_SETTINGS
from duramen.base.metrics import MOST_SERIES
from duramen.base.settings import Setting
from duramen.base.units import KIB, MIB

__all__ = ["BROKER", "GROUP", "STREAM"]

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_DAY_MS = 86_400_000
_COMPRESSION = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_NOT_TIERED = "there is no tiered storage yet"
_FLUSH_IDLE_WITH = (
    ("sync", "durability=sync implies it: there is a sync before each acknowledgement"),
    ("memory", "with durability=memory there is nothing to sync"),
)
_REPLICA = r"\*|\d+:\d+"
_NOT_THROTTLED = "`leader.replication.throttled.rate` applies to all replicas that catch up"


def _by_name(*settings: Setting) -> Mapping[str, Setting]:
    return MappingProxyType({setting.name: setting for setting in settings})


# fmt: off
BROKER = _by_name(
    Setting("data.dir", "text", "./duramen-data",
            "The directory with all data of this node."),
    Setting("node.id", "integer", 1,
            "The id of this node.",
            kafka=True, minimum=0, maximum=_INT32_MAX, kafka_default="none: it must be given",
            deviation="a standalone node needs no id of its own"),
    Setting("kafka.listen", "text", "127.0.0.1:9092",
            "The addresses of the Kafka door, HOST:PORT, separated by commas, with IPv6 hosts in brackets; port 0 "
            "selects a free port."),
    Setting("kafka.advertise", "text", "",
            "The HOST:PORT that is advertised to Kafka clients; empty: the address that the client connected to. "
            "Required if `kafka.listen` is every address of the machine (0.0.0.0 or [::])."),
    Setting("http.listen", "text", "127.0.0.1:9644",
            "The addresses of the HTTP door, in the form of `kafka.listen`."),
    Setting("http.allowed.hosts", "text", "",
            "Names that are allowed in the Host header of HTTP requests, beside the node's addresses and "
            "`localhost`, separated by commas; a name with a port is allowed with that port only. Other names are "
            "refused to prevent DNS rebinding."),
    Setting("queue.waiting.requests", "integer", 10_000,
            "The number of requests to light queues that may wait for entries at a time, at each of the HTTP and NATS "
            "doors; further ones get `node-busy`. Over HTTP each has a connection of its own.",
            minimum=1, maximum=1_000_000),
    Setting("cluster.listen", "text", "",
            "The address for other nodes of the cluster, HOST:PORT; empty: a standalone node. It is advertised to "
            "them unless `cluster.advertise` is set."),
    Setting("cluster.advertise", "text", "",
            "The HOST:PORT that is advertised to other nodes, as in `cluster.seeds`; empty: `cluster.listen`. "
            "Required if that is every address of the machine (0.0.0.0 or [::]), or if other nodes connect through "
            "NAT or a proxy."),
    Setting("cluster.seeds", "text", "",
            "Addresses of nodes, HOST:PORT, separated by commas. Nodes with empty directories and the same seeds "
            "form a cluster when all seeds are up; a later node needs one live seed."),
    Setting("cluster.secret.file", "text", "",
            "The file with the secret by which nodes of a cluster authenticate to each other: at least 32 bytes, "
            "readable by its owner only. `duramen cluster secret FILE` creates one."),
    Setting("broker.rack", "text", "",
            "The rack or availability zone of this node. Replicas of a partition are placed in different racks, and "
            "consumers with the same rack read from this node.",
            kafka=True, kafka_default="null", deviation="the same: none"),
    Setting("nats.server", "text", "embedded",
            "`embedded` starts a nats-server beside the node, `off` disables the NATS door, an address (nats://…) "
            "uses an existing server.",
            option="--nats"),
    Setting("nats.listen", "text", "127.0.0.1:4222",
            "The address of the embedded nats-server, HOST:PORT; port 0 selects a free port. nats-server listens on "
            "one address only; 0.0.0.0 means all addresses."),
    Setting("nats.cluster.listen", "text", "",
            "The address of the embedded nats-server for those of the other nodes, HOST:PORT. With it they form one "
            "NATS cluster, so that a publisher at any node reaches every leader; empty: each server is on its own. "
            "Their route password is derived from the cluster secret."),
    Setting("logging.level", "choice", "info",
            "The lowest level that is logged, on standard error.",
            choices=("debug", "info", "warning", "error"), option="--log-level", reload=True),
    Setting("logging.format", "choice", "text",
            "The format of the log, one event a line: `text` for people, `json` for programs, with the fields ts, "
            "level, logger, message and fields.",
            choices=("text", "json"), option="--log-format", reload=True),
    Setting("insecure", "flag", False,
            "Allow addresses other than the loopback, although there is no authentication yet: any client that "
            "reaches them can read, write and delete everything."),
    Setting("memory.limit.bytes", "integer", 512 * MIB,
            "The bound on the resident memory of the broker's process. Requests, records that are not copied to "
            "segments yet, and responses share it; at the limit the node pauses reading from sockets.",
            unit="bytes", minimum=128 * MIB),
    Setting("wal.max.bytes", "integer", 1024 * MIB,
            "The maximum size of the write-ahead log on disk; at the bound appends wait until segments have caught "
            "up. A batch may have at most half of it.",
            unit="bytes", minimum=8 * MIB),
    Setting("wal.file.bytes", "integer", 64 * MIB,
            "The size of one preallocated, recycled file of the write-ahead log; at most a quarter of "
            "`wal.max.bytes`.",
            unit="bytes", minimum=1 * MIB, maximum=1024 * MIB),
    Setting("wal.copy.bytes", "integer", 8 * MIB,
            "Batches in memory are copied into segments when their total reaches this size. It is limited to half of "
            "their share of `memory.limit.bytes`, which is an eighth of the limit or less.",
            unit="bytes", minimum=64 * KIB),
    Setting("wal.copy.interval.ms", "integer", 5000,
            "Batches in memory are copied into segments after this time at the latest.",
            unit="ms", minimum=1),
    Setting("auto.create.topics.enable", "flag", True,
            "Create a missing stream when a client requests its metadata and allows auto-creation.",
            kafka=True, reload=True),
    Setting("num.partitions", "integer", 1,
            "The default number of partitions of a new stream.",
            kafka=True, reload=True, minimum=1, maximum=100_000),
    Setting("message.max.bytes", "integer", 1_048_588,
            "Default of `max.message.bytes`: the largest record batch, compressed.",
            kafka=True, dynamic=True, unit="bytes", minimum=0, maximum=_INT32_MAX),
    Setting("socket.request.max.bytes", "integer", 104_857_600,
            "The largest request of the Kafka door; a larger one closes its connection. A request may have at most a "
            "quarter of `memory.limit.bytes`.",
            kafka=True, unit="bytes", minimum=1024, maximum=_INT32_MAX),
    Setting("fetch.cold.share", "number", 0.1,
            "The share of time that all consumers' reads from disk may use together while there are writes; 1 means "
            "no limit, and values below 0.01 mean 0.01.",
            minimum=0, maximum=1),
    Setting("fetch.max.bytes", "integer", 57_671_680,
            "The maximum record bytes in one fetch response.",
            kafka=True, reload=True, unit="bytes", minimum=1024, maximum=_INT32_MAX),
    Setting("max.incremental.fetch.session.cache.slots", "integer", 1000,
            "The maximum number of incremental fetch sessions; 0 disables them. They use at most 1/32 of "
            "`memory.limit.bytes`.",
            kafka=True, minimum=0, maximum=_INT32_MAX),
    Setting("max.request.partition.size.limit", "integer", 2000,
            "The maximum number of partitions in one response to DescribeTopicPartitions; its cursor names the next "
            "one.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("connections.max.idle.ms", "integer", 600_000,
            "A Kafka connection without requests for this long is closed.",
            kafka=True, unit="ms", minimum=1),
    Setting("log.durability", "choice", "sync",
            "Default of `durability`: what an acknowledgement means.",
            dynamic=True, choices=("sync", "os", "memory")),
    Setting("log.cleanup.policy", "list", "delete",
            "Default of `cleanup.policy`.",
            kafka=True, dynamic=True, choices=("compact", "delete")),
    Setting("log.retention.ms", "integer", 7 * _DAY_MS,
            "Default of `retention.ms`; -1 means no bound.",
            kafka=True, dynamic=True, unit="ms", minimum=-1, kafka_default="null: log.retention.hours (168) applies",
            deviation="the same 7 days, under one name"),
    Setting("log.retention.bytes", "integer", -1,
            "Default of `retention.bytes`; -1 means no bound.",
            kafka=True, dynamic=True, unit="bytes", minimum=-1),
    Setting("log.segment.bytes", "integer", 1024 * MIB,
            "Default of `segment.bytes`.",
            kafka=True, dynamic=True, unit="bytes", minimum=14, maximum=_INT32_MAX),
    Setting("log.roll.ms", "integer", 7 * _DAY_MS,
            "Default of `segment.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=1, kafka_default="null: log.roll.hours (168) applies",
            deviation="the same 7 days, under one name"),
    Setting("log.segment.delete.delay.ms", "integer", 60_000,
            "Default of `file.delete.delay.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0),
    Setting("log.flush.interval.messages", "integer", _INT64_MAX,
            "Default of `flush.messages`.",
            kafka=True, dynamic=True, minimum=1),
    Setting("log.flush.interval.ms", "integer", _INT64_MAX,
            "Default of `flush.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0,
            kafka_default="null: log.flush.scheduler.interval.ms (9223372036854775807) applies",
            deviation="the same: no bound; each sync runs when it is due, without a scheduler"),
    Setting("log.retention.check.interval.ms", "integer", 300_000,
            "How often logs are checked for segments to delete by retention.",
            kafka=True, unit="ms", minimum=1),
    Setting("log.cleaner.enable", "flag", True,
            "Compact the streams with `cleanup.policy=compact`.",
            kafka=True),
    Setting("log.cleaner.backoff.ms", "integer", 15_000,
            "How often logs are checked for compaction while none needs it.",
            kafka=True, unit="ms", minimum=1),
    Setting("log.cleaner.dedupe.buffer.size", "integer", 64 * MIB,
            "Memory for the keys of one round of compaction: 24 bytes a key, plus the free part by "
            "`log.cleaner.io.buffer.load.factor`. Keys that do not fit are compacted in the next round. At most an "
            "eighth of `memory.limit.bytes`, and only as much as the log's records need.",
            kafka=True, unit="bytes", minimum=64 * KIB, kafka_default="134217728",
            deviation="it is part of memory.limit.bytes"),
    Setting("log.cleaner.io.buffer.load.factor", "number", 0.9,
            "The maximum load factor of the table of keys. With a higher one the table holds more keys, and each key "
            "takes more time. Values below 0.1 mean 0.1.",
            kafka=True, minimum=0, maximum=1),
    Setting("log.cleaner.io.max.bytes.per.second", "integer", 4 * MIB,
            "The maximum bytes that compaction reads and writes in a second. With a bound, compaction also uses at "
            "most a tenth of a processor, so that acknowledgements do not wait for it. 0 means no bound.",
            kafka=True, unit="bytes", minimum=0, kafka_default="1.7976931348623157E308",
            deviation="compaction shares one interpreter with everything else"),
    Setting("log.cleaner.delete.retention.ms", "integer", _DAY_MS,
            "Default of `delete.retention.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0),
    Setting("log.cleaner.min.cleanable.ratio", "number", 0.5,
            "Default of `min.cleanable.dirty.ratio`.",
            kafka=True, dynamic=True, minimum=0, maximum=1),
    Setting("log.cleaner.min.compaction.lag.ms", "integer", 0,
            "Default of `min.compaction.lag.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0),
    Setting("log.cleaner.max.compaction.lag.ms", "integer", _INT64_MAX,
            "Default of `max.compaction.lag.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=1),
    Setting("scrub.bytes.per.second", "integer", 4 * MIB,
            "The rate at which the scrubber reads segments in the background to find damage; 0 turns it off.",
            unit="bytes", minimum=0),
    Setting("scrub.interval.ms", "integer", 7 * _DAY_MS,
            "The scrubber reads every segment about once in this time, or as often as `scrub.bytes.per.second` "
            "allows.",
            unit="ms", minimum=1),
    Setting("log.message.timestamp.type", "choice", "CreateTime",
            "Default of `message.timestamp.type`.",
            kafka=True, dynamic=True, choices=("CreateTime", "LogAppendTime")),
    Setting("log.message.timestamp.before.max.ms", "integer", _INT64_MAX,
            "Default of `message.timestamp.before.max.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0),
    Setting("log.message.timestamp.after.max.ms", "integer", 3_600_000,
            "Default of `message.timestamp.after.max.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0),
    Setting("compression.type", "choice", "producer",
            "Default of the stream setting of the same name.",
            kafka=True, dynamic=True, choices=_COMPRESSION),
    Setting("compression.gzip.level", "integer", -1,
            "Default of the stream setting of the same name.",
            kafka=True, dynamic=True, minimum=-1, maximum=9),
    Setting("compression.lz4.level", "integer", 9,
            "Default of the stream setting of the same name.",
            kafka=True, dynamic=True, minimum=1, maximum=17),
    Setting("compression.zstd.level", "integer", 3,
            "Default of the stream setting of the same name.",
            kafka=True, dynamic=True, minimum=-131072, maximum=22),
    Setting("max.decompressed.message.bytes", "integer", 2_147_483_639,
            "Default of the stream setting of the same name.",
            kafka=True, dynamic=True, unit="bytes", minimum=1, maximum=_INT32_MAX),
    Setting("default.replication.factor", "integer", 3,
            "The default number of replicas of a new stream, and of internal streams; fewer if the cluster has fewer "
            "nodes.",
            kafka=True, reload=True, minimum=1, maximum=32767, kafka_default="1",
            deviation="with one replica, the loss of a disk loses records, so three are the default"),
    Setting("min.insync.replicas", "integer", 1,
            "Default of the stream setting of the same name, if it is set for the whole cluster (Kafka's "
            "IncrementalAlterConfigs of all brokers). In a cluster the value of a single node has no effect.",
            kafka=True, dynamic=True, minimum=1, maximum=_INT32_MAX),
    Setting("log.roll.jitter.ms", "integer", 0,
            "Default of `segment.jitter.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0, kafka_default="null: log.roll.jitter.hours (0) applies",
            deviation="the same: none, under one name"),
    Setting("quota.window.num", "integer", 11,
            "The number of windows over which a client's rate is measured.",
            kafka=True, minimum=1, maximum=1000),
    Setting("quota.window.size.seconds", "integer", 1,
            "The length of each of the `quota.window.num` windows, in seconds.",
            kafka=True, minimum=1, maximum=86_400),
    Setting("group.initial.rebalance.delay.ms", "integer", 3000,
            "The time that an empty group waits for more members before its first rebalance.",
            kafka=True, unit="ms", minimum=0, maximum=_INT32_MAX),
    Setting("group.min.session.timeout.ms", "integer", 6000,
            "The shortest session timeout that a member may request.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.max.session.timeout.ms", "integer", 1_800_000,
            "The longest session timeout that a member may request.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.max.size", "integer", _INT32_MAX,
            "The maximum number of members of one group.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    *CLUSTER_NODE_SETTINGS,
    *CONSUMER_NODE_SETTINGS,
    *INVENTORY_NODE_SETTINGS,
    Setting("metrics.partitions.max", "integer", MOST_SERIES,
            "The maximum number of series of one metric in `/metrics`; `duramen_series_left_out` counts omitted "
            "ones.",
            minimum=1),
    Setting("offsets.topic.num.partitions", "integer", 50,
            "Partitions of `__consumer_offsets`; fixed when it is first used.",
            kafka=True, minimum=1, maximum=10_000),
    Setting("transaction.max.timeout.ms", "integer", 900_000,
            "The longest transaction timeout that a producer may request.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transactional.id.expiration.ms", "integer", 7 * _DAY_MS,
            "A transactional id expires after this time without use.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "integer", 10_000,
            "How often transactions that are open for longer than their timeout are aborted.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", "integer", 3_600_000,
            "How often transactional ids are checked for expiry.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transaction.state.log.num.partitions", "integer", 50,
            "Partitions of `__transaction_state`; fixed when it is first used.",
            kafka=True, minimum=1, maximum=10_000),
    Setting("transaction.state.log.segment.bytes", "integer", 100 * MIB,
            "`segment.bytes` of `__transaction_state`; fixed when it is first used.",
            kafka=True, unit="bytes", minimum=1024, maximum=_INT32_MAX),
    Setting("offsets.retention.minutes", "integer", 10_080,
            "Offsets of a group without members expire after this time.",
            kafka=True, unit="minutes", minimum=1, maximum=_INT32_MAX),
    Setting("offsets.retention.check.interval.ms", "integer", 600_000,
            "How often offsets are checked for expiry.",
            kafka=True, unit="ms", minimum=1),
    Setting("offset.metadata.max.bytes", "integer", 4096,
            "The maximum size of the metadata that a client commits with an offset.",
            kafka=True, unit="bytes", minimum=0, maximum=_INT32_MAX),
    Setting("producer.id.expiration.ms", "integer", _DAY_MS,
            "The state of an idempotent producer expires after this time without writes.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    *NODE_SETTINGS,
)

GROUP = _by_name(*CONSUMER_GROUP_SETTINGS, *GROUP_SETTINGS)

STREAM = _by_name(
    Setting("durability", "choice", "sync",
            "What an acknowledgement means. `sync`: the record is on disk, covered by an fdatasync that began after "
            "the write. `os`: the record is written to the operating system; a crash of the process loses nothing, a "
            "power failure may lose the unsynced tail. `memory`: the record is in bounded memory only; nothing "
            "survives a restart. A change takes effect at a segment roll, after everything before it is synced.",
            scope="stream", dynamic=True, choices=("sync", "os", "memory"), broker_default="log.durability"),
    Setting("cleanup.policy", "list", "delete",
            "`delete` deletes old segments by the retention settings. `compact` keeps the last record of every key, "
            "and requires a key in every record. `compact,delete` does both, an empty list neither. With "
            "durability=memory nothing is compacted.",
            scope="stream", kafka=True, dynamic=True, choices=("compact", "delete"),
            broker_default="log.cleanup.policy"),
    Setting("retention.ms", "integer", 7 * _DAY_MS,
            "Segments whose newest record is older than this are deleted; -1 means no bound. Of a queue space: entries "
            "older than this are removed from their queues; the default removes none.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=-1, broker_default="log.retention.ms"),
    Setting("retention.bytes", "integer", -1,
            "The oldest segments of a partition are deleted as long as the rest has at least this size; -1 means no "
            "bound. Of a queue space: the oldest entries of a queue are removed until the rest has at most this size, "
            "as `duramen queue stats` counts it.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=-1, broker_default="log.retention.bytes"),
    Setting("retention.records", "integer", -1,
            "The oldest segments of a partition are deleted as long as the rest has at least this many records; -1 "
            "means no bound. Of a queue space: the maximum number of entries of a queue; the oldest are removed first.",
            scope="stream", dynamic=True, unit="records", minimum=-1),
    Setting("memory.max.bytes", "integer", 16 * MIB,
            "With durability=memory: the maximum size of a partition; the oldest segments are deleted first. A "
            "larger batch is kept alone.",
            scope="stream", dynamic=True, unit="bytes", minimum=64 * KIB, maximum=_INT32_MAX),
    Setting("segment.bytes", "integer", 1024 * MIB,
            "The maximum size of a segment; a larger one is closed and a new one starts.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=14, maximum=_INT32_MAX,
            broker_default="log.segment.bytes"),
    Setting("segment.ms", "integer", 7 * _DAY_MS,
            "A segment whose first record is older than this is closed and a new one starts; without writes this "
            "happens at the next retention check.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=1, broker_default="log.roll.ms"),
    Setting("file.delete.delay.ms", "integer", 60_000,
            "The time before the files of a deleted segment (with the suffix `.deleted`) or the directory of a "
            "deleted stream are removed. They cannot be read meanwhile, and are removed at once when the node stops "
            "or starts.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.segment.delete.delay.ms"),
    Setting("max.message.bytes", "integer", 1_048_588,
            "The largest record batch, compressed.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=0, maximum=_INT32_MAX,
            broker_default="message.max.bytes"),
    Setting("message.timestamp.type", "choice", "CreateTime",
            "`CreateTime` keeps the producer's timestamps, `LogAppendTime` replaces them with the time of the "
            "append.",
            scope="stream", kafka=True, dynamic=True, choices=("CreateTime", "LogAppendTime"),
            broker_default="log.message.timestamp.type"),
    Setting("message.timestamp.before.max.ms", "integer", _INT64_MAX,
            "The maximum by which a producer's timestamp may be before the broker's clock.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.message.timestamp.before.max.ms"),
    Setting("message.timestamp.after.max.ms", "integer", 3_600_000,
            "The maximum by which a producer's timestamp may be after the broker's clock.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.message.timestamp.after.max.ms"),
    Setting("compression.type", "choice", "producer",
            "The compression of batches; `producer` keeps the producer's. Batches with another compression are "
            "compressed again in the background before the append; a batch that is then larger than "
            "`max.message.bytes` is refused.",
            scope="stream", kafka=True, dynamic=True, choices=_COMPRESSION, broker_default="compression.type"),
    Setting("compression.gzip.level", "integer", -1,
            "The level of gzip compression by `compression.type`: 1 to 9; 0 does not compress, -1 is gzip's default.",
            scope="stream", kafka=True, dynamic=True, minimum=-1, maximum=9, broker_default="compression.gzip.level"),
    Setting("compression.lz4.level", "integer", 9,
            "The level of lz4 compression by `compression.type`: 1 to 17; 9, the default, is the fast mode.",
            scope="stream", kafka=True, dynamic=True, minimum=1, maximum=17, broker_default="compression.lz4.level"),
    Setting("compression.zstd.level", "integer", 3,
            "The level of zstd compression by `compression.type`.",
            scope="stream", kafka=True, dynamic=True, minimum=-131072, maximum=22,
            broker_default="compression.zstd.level"),
    Setting("max.decompressed.message.bytes", "integer", 2_147_483_639,
            "The maximum decompressed size of one batch if the broker has to decompress it: to check keys, to find a "
            "time, or to compress it again. At most an eighth of `memory.limit.bytes`.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=1, maximum=_INT32_MAX,
            broker_default="max.decompressed.message.bytes"),
    Setting("duplicate.window.ms", "integer", 120_000,
            "The time for which a `Nats-Msg-Id` is remembered; 0 turns de-duplication off.",
            scope="stream", dynamic=True, unit="ms", minimum=0, maximum=7 * _DAY_MS),
    Setting("nats.ack", "choice", "publish",
            "`publish` acknowledges each NATS message on its reply subject once it is stored; `never` leaves the "
            "reply subject to the application.",
            scope="stream", dynamic=True, choices=("publish", "never")),
    Setting("min.insync.replicas", "integer", 1,
            "The number of replicas that must have a record before acks=all is answered; as in Apache Kafka 4, at "
            "most as many as the stream has. If neither the stream nor the cluster sets it, it is 2 for partitions "
            "with three replicas or more, internal streams included, and else 1; replicas that a reassignment adds "
            "do not count. Effective from feature level 2 on (`duramen cluster upgrade`). Apache Kafka's default is "
            "1: there the last in-sync replica may be the only one with acknowledged records.",
            scope="stream", kafka=True, dynamic=True, minimum=1, maximum=_INT32_MAX,
            broker_default="min.insync.replicas"),
    Setting("min.synced.nodes", "integer", 1,
            "The number of nodes that must have synced a record before consumers can read it. With fewer nodes in "
            "sync, consumers read no new records.",
            scope="stream", minimum=1, maximum=32767),
    Setting("replication.topology", "choice", "fanout",
            "From which node each replica fetches: `fanout`, from the leader; `chain`, from the replica before it in "
            "the assignment; `tree`, two replicas from each.",
            scope="stream", choices=("fanout", "chain", "tree")),
    Setting("read.replicas", "list", "",
            "Nodes that follow the stream's partitions in addition to the replicas and serve consumers: `all`, ids, "
            "`rack:NAME` for the nodes of a rack, and `racks` for one node in each rack without a replica of the "
            "partition. They are never in an in-sync set and never become leader.",
            scope="stream", dynamic=True, item=r"all|racks|rack:[^\s,]+|\d+",
            example="all, racks, rack:NAME or ids of nodes"),
    Setting("delete.retention.ms", "integer", _DAY_MS,
            "The time for which compaction keeps a tombstone (a record without a value) after its first round over "
            "it.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.cleaner.delete.retention.ms"),
    Setting("min.cleanable.dirty.ratio", "number", 0.5,
            "A log is compacted when its dirty ratio, without the active segment, is above this.",
            scope="stream", kafka=True, dynamic=True, minimum=0, maximum=1,
            broker_default="log.cleaner.min.cleanable.ratio"),
    Setting("min.compaction.lag.ms", "integer", 0,
            "Segments with a record younger than this are not compacted.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.cleaner.min.compaction.lag.ms"),
    Setting("max.compaction.lag.ms", "integer", _INT64_MAX,
            "A log with an uncompacted record older than this is compacted, whatever its dirty ratio is; an older "
            "active segment is closed.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=1,
            broker_default="log.cleaner.max.compaction.lag.ms"),
    Setting("flush.messages", "integer", _INT64_MAX,
            "With durability=os: a partition is synced when this many records are unsynced. Appends do not wait for "
            "that sync. durability=sync already syncs before each acknowledgement; with durability=memory there is "
            "nothing to sync.",
            scope="stream", kafka=True, dynamic=True, minimum=1, broker_default="log.flush.interval.messages",
            idle_with=_FLUSH_IDLE_WITH),
    Setting("flush.ms", "integer", _INT64_MAX,
            "With durability=os: a partition is synced this long after its first unsynced record. As for "
            "`flush.messages`, it has no effect with durability=sync or memory.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0, broker_default="log.flush.interval.ms",
            idle_with=_FLUSH_IDLE_WITH),
    Setting("index.interval.bytes", "integer", 4096,
            "Distance of index entries.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=0, maximum=_INT32_MAX,
            without_effect="the index has one entry for every 64 KiB block"),
    Setting("segment.index.bytes", "integer", 10 * MIB,
            "Size of a segment's index.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=4, maximum=_INT32_MAX,
            without_effect="an index grows with its segment"),
    Setting("segment.jitter.ms", "integer", 0,
            "The maximum random time by which a segment is closed before `segment.ms`, so that segments of many "
            "partitions are not closed at once.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0, broker_default="log.roll.jitter.ms"),
    Setting("preallocate", "flag", False,
            "Preallocate segments.",
            scope="stream", kafka=True, dynamic=True, without_effect="the write-ahead log is preallocated instead"),
    Setting("unclean.leader.election.enable", "flag", False,
            "If all replicas with every acknowledged record are down for a second, elect the most complete live "
            "replica. The records that it lacks are lost. Every node logs a warning for each such election. It has "
            "no effect on a standalone node.",
            scope="stream", kafka=True, dynamic=True),
    Setting("leader.replication.throttled.replicas", "list", "",
            "Replicas whose replication is throttled on the leader's side.",
            scope="stream", kafka=True, dynamic=True, item=_REPLICA, without_effect=_NOT_THROTTLED),
    Setting("follower.replication.throttled.replicas", "list", "",
            "Replicas whose replication is throttled on the follower's side.",
            scope="stream", kafka=True, dynamic=True, item=_REPLICA, without_effect=_NOT_THROTTLED),
    Setting("remote.storage.enable", "flag", False,
            "Copy closed segments to remote storage: cannot be `true` yet.",
            scope="stream", kafka=True, dynamic=True, only=(False,), without_effect=_NOT_TIERED),
    Setting("remote.log.copy.disable", "flag", False,
            "Copy nothing more to remote storage.",
            scope="stream", kafka=True, dynamic=True, without_effect=_NOT_TIERED),
    Setting("remote.log.delete.on.disable", "flag", False,
            "Delete what is in remote storage when it is switched off.",
            scope="stream", kafka=True, dynamic=True, without_effect=_NOT_TIERED),
    Setting("local.retention.ms", "integer", -2,
            "How long segments stay on this node beside remote storage.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=-2, without_effect=_NOT_TIERED),
    Setting("local.retention.bytes", "integer", -2,
            "How much of a partition stays on this node beside remote storage.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=-2, without_effect=_NOT_TIERED),
    *KEYED_SETTINGS,
    *QUEUE_SETTINGS,
    *TABLE_SETTINGS,
    *TABLE_RETENTION,
)
# fmt: on
