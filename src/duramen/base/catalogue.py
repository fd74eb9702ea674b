"""Every setting there is, as data. The options, environment variables, checks, DescribeConfigs and docs come from it.

Where a name is Kafka's, so are its meaning and its default. Names of ours end in their unit.
"""

from collections.abc import Mapping
from types import MappingProxyType

from duramen.base.catalogue_cluster import NODE_SETTINGS as CLUSTER_NODE_SETTINGS
from duramen.base.catalogue_consumers import GROUP_SETTINGS as CONSUMER_GROUP_SETTINGS
from duramen.base.catalogue_consumers import NODE_SETTINGS as CONSUMER_NODE_SETTINGS
from duramen.base.catalogue_keyed import STREAM_SETTINGS as KEYED_SETTINGS
from duramen.base.catalogue_queues import STREAM_SETTINGS as QUEUE_SETTINGS
from duramen.base.catalogue_shares import GROUP_SETTINGS, NODE_SETTINGS
from duramen.base.catalogue_tables import RETENTION_SETTINGS as TABLE_RETENTION
from duramen.base.catalogue_tables import STREAM_SETTINGS as TABLE_SETTINGS
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
_NOT_THROTTLED = "which replicas catch up is known: `leader.replication.throttled.rate` is for all of them"


def _by_name(*settings: Setting) -> Mapping[str, Setting]:
    return MappingProxyType({setting.name: setting for setting in settings})


# fmt: off
BROKER = _by_name(
    Setting("data.dir", "text", "./duramen-data",
            "The directory that holds everything this node stores."),
    Setting("node.id", "integer", 1,
            "The id of this node, as clients see it.",
            kafka=True, minimum=0, maximum=_INT32_MAX, kafka_default="none: it must be given",
            deviation="a node that is alone needs no number of its own"),
    Setting("kafka.listen", "text", "127.0.0.1:9092",
            "The addresses of the Kafka door, HOST:PORT, separated by commas, an IPv6 host in brackets; port 0 takes a "
            "free one."),
    Setting("kafka.advertise", "text", "",
            "The HOST:PORT that Kafka clients are told to connect to; empty: the address that they came to. Needed "
            "where `kafka.listen` is every address of the machine (0.0.0.0 or [::])."),
    Setting("http.listen", "text", "127.0.0.1:9644",
            "The addresses of the HTTP door, as those of the Kafka door."),
    Setting("http.allowed.hosts", "text", "",
            "Names by which HTTP requests may call the node beside its addresses and `localhost`, with commas between "
            "them; a name with a port is allowed with that port only. Others are refused: a web page could have sent "
            "them (DNS rebinding)."),
    Setting("cluster.listen", "text", "",
            "The address of the door for other nodes, HOST:PORT; empty: the node is alone. It is how the others reach "
            "this node, unless `cluster.advertise` says otherwise."),
    Setting("cluster.advertise", "text", "",
            "The HOST:PORT at which other nodes reach this one, and by which `cluster.seeds` name it; empty: "
            "`cluster.listen`. Needed where that is every address of the machine (0.0.0.0 or [::]), and where the way "
            "here leads through a translation of addresses or a proxy."),
    Setting("cluster.seeds", "text", "",
            "Addresses of nodes, HOST:PORT with commas between them. Nodes with empty directories that all name the "
            "same ones form a cluster as soon as all of these are up; a node that comes later names any that is up."),
    Setting("cluster.secret.file", "text", "",
            "The file with the secret that the nodes of a cluster prove to each other: at least 32 bytes that only its "
            "owner may read. `duramen cluster secret FILE` makes one."),
    Setting("broker.rack", "text", "",
            "Where this node stands, such as a rack or an availability zone: replicas of a partition go to different "
            "ones, and consumers that say the same are told to read here.",
            kafka=True, kafka_default="null", deviation="the same: none"),
    Setting("nats.server", "text", "embedded",
            "`embedded` starts a nats-server beside the node, `off` has no NATS door, an address (nats://…) uses "
            "a server that runs already.",
            option="--nats"),
    Setting("nats.listen", "text", "127.0.0.1:4222",
            "The address of the embedded nats-server, HOST:PORT; port 0 takes a free one. nats-server listens on one "
            "address only; 0.0.0.0 is all of them."),
    Setting("nats.cluster.listen", "text", "",
            "The address at which the embedded nats-server of a cluster's node listens for those of the other nodes, "
            "HOST:PORT: they are one cluster then, and who publishes at any node reaches whichever leads; empty: each "
            "is alone. What they prove to each other is derived from the secret of the cluster."),
    Setting("logging.level", "choice", "info",
            "The least that is logged, on standard error.",
            choices=("debug", "info", "warning", "error"), option="--log-level", reload=True),
    Setting("logging.format", "choice", "text",
            "How an event is logged, one a line: `text` for people, `json` for programs, with the fields ts, level, "
            "logger, message and fields.",
            choices=("text", "json"), option="--log-format", reload=True),
    Setting("insecure", "flag", False,
            "Allow addresses that are not loopback, although there is no authentication yet: whoever reaches them"
            " can read, write and delete everything."),
    Setting("memory.limit.bytes", "integer", 512 * MIB,
            "What the broker's process may hold resident. Requests, records not yet copied to segments, and "
            "answers share it; at the limit, reading from sockets pauses.",
            unit="bytes", minimum=128 * MIB),
    Setting("wal.max.bytes", "integer", 1024 * MIB,
            "The largest the write-ahead log gets on disk; appends wait at the bound until segments have caught "
            "up. A batch may have half of it.",
            unit="bytes", minimum=8 * MIB),
    Setting("wal.file.bytes", "integer", 64 * MIB,
            "The size of one preallocated, recycled file of the write-ahead log; at most a quarter of "
            "`wal.max.bytes`.",
            unit="bytes", minimum=1 * MIB, maximum=1024 * MIB),
    Setting("wal.copy.bytes", "integer", 8 * MIB,
            "Batches that wait in memory for their copy into segments are copied at the latest when they take "
            "this much; at most half of what `memory.limit.bytes` leaves to them, which is an eighth of it or less.",
            unit="bytes", minimum=64 * KIB),
    Setting("wal.copy.interval.ms", "integer", 5000,
            "Batches that wait in memory for their copy into segments are copied at the latest after this time.",
            unit="ms", minimum=1),
    Setting("auto.create.topics.enable", "flag", True,
            "Create a stream when a client asks for the metadata of one that does not exist and allows it.",
            kafka=True, reload=True),
    Setting("num.partitions", "integer", 1,
            "Partitions of a stream that is created without saying how many.",
            kafka=True, reload=True, minimum=1, maximum=100_000),
    Setting("message.max.bytes", "integer", 1_048_588,
            "The largest record batch a stream takes, compressed, unless its max.message.bytes says otherwise.",
            kafka=True, dynamic=True, unit="bytes", minimum=0, maximum=_INT32_MAX),
    Setting("socket.request.max.bytes", "integer", 104_857_600,
            "The largest request the Kafka door takes; a larger one closes its connection. No request is larger than a "
            "quarter of `memory.limit.bytes`.",
            kafka=True, unit="bytes", minimum=1024, maximum=_INT32_MAX),
    Setting("fetch.cold.share", "number", 0.1,
            "How much of the time the reads of Kafka consumers that wait for the disk may take, together, while "
            "somebody writes; 1 lets them take what they get. Less than 0.01 is 0.01.",
            minimum=0, maximum=1),
    Setting("fetch.max.bytes", "integer", 57_671_680,
            "The most record bytes in one answer to a fetch.",
            kafka=True, reload=True, unit="bytes", minimum=1024, maximum=_INT32_MAX),
    Setting("max.incremental.fetch.session.cache.slots", "integer", 1000,
            "How many incremental fetch sessions there may be; 0 declines them. They take a thirty-second of "
            "`memory.limit.bytes` at most.",
            kafka=True, minimum=0, maximum=_INT32_MAX),
    Setting("max.request.partition.size.limit", "integer", 2000,
            "The most partitions in one answer to DescribeTopicPartitions; its cursor goes on with the next.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("connections.max.idle.ms", "integer", 600_000,
            "A Kafka connection that has asked for nothing for this long is closed.",
            kafka=True, unit="ms", minimum=1),
    Setting("log.durability", "choice", "sync",
            "What an acknowledgement means unless the stream's `durability` says otherwise.",
            dynamic=True, choices=("sync", "os", "memory")),
    Setting("log.cleanup.policy", "list", "delete",
            "Default of `cleanup.policy`.",
            kafka=True, dynamic=True, choices=("compact", "delete")),
    Setting("log.retention.ms", "integer", 7 * _DAY_MS,
            "Default of `retention.ms`; -1 keeps records for ever.",
            kafka=True, dynamic=True, unit="ms", minimum=-1, kafka_default="null: log.retention.hours (168) counts",
            deviation="the same 7 days; there is one name for them here"),
    Setting("log.retention.bytes", "integer", -1,
            "Default of `retention.bytes`; -1 means no bound.",
            kafka=True, dynamic=True, unit="bytes", minimum=-1),
    Setting("log.segment.bytes", "integer", 1024 * MIB,
            "Default of `segment.bytes`.",
            kafka=True, dynamic=True, unit="bytes", minimum=14, maximum=_INT32_MAX),
    Setting("log.roll.ms", "integer", 7 * _DAY_MS,
            "Default of `segment.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=1, kafka_default="null: log.roll.hours (168) counts",
            deviation="the same 7 days; there is one name for them here"),
    Setting("log.segment.delete.delay.ms", "integer", 60_000,
            "Default of `file.delete.delay.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0),
    Setting("log.flush.interval.messages", "integer", _INT64_MAX,
            "Default of `flush.messages`.",
            kafka=True, dynamic=True, minimum=1),
    Setting("log.flush.interval.ms", "integer", _INT64_MAX,
            "Default of `flush.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0,
            kafka_default="null: log.flush.scheduler.interval.ms (9223372036854775807) counts",
            deviation="the same: no bound; there is no scheduler, each sync is made when its time comes"),
    Setting("log.retention.check.interval.ms", "integer", 300_000,
            "How often logs are looked through for segments that retention lets go.",
            kafka=True, unit="ms", minimum=1),
    Setting("log.cleaner.enable", "flag", True,
            "Compact the streams whose `cleanup.policy` says so.",
            kafka=True),
    Setting("log.cleaner.backoff.ms", "integer", 15_000,
            "How often logs are looked through for one to compact, while there is none.",
            kafka=True, unit="ms", minimum=1),
    Setting("log.cleaner.dedupe.buffer.size", "integer", 64 * MIB,
            "Memory for the keys that one round of compaction can take in, 24 bytes a key and the share that "
            "`log.cleaner.io.buffer.load.factor` leaves free; what it cannot take waits for the next round. At most an "
            "eighth of `memory.limit.bytes`; only as much is taken as the log has records to look at.",
            kafka=True, unit="bytes", minimum=64 * KIB, kafka_default="134217728",
            deviation="it is a part of memory.limit.bytes here"),
    Setting("log.cleaner.io.buffer.load.factor", "number", 0.9,
            "How full the table of keys may get; fuller takes more keys and more time for each. Less than 0.1 is 0.1.",
            kafka=True, minimum=0, maximum=1),
    Setting("log.cleaner.io.max.bytes.per.second", "integer", 4 * MIB,
            "The most bytes that compaction reads and writes in a second; with a bound it takes at most a tenth of a "
            "processor too, so that acknowledgements do not wait for it. 0 means no bound.",
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
            "How fast segments are read in the background to find damage before a consumer does; 0 does not.",
            unit="bytes", minimum=0),
    Setting("scrub.interval.ms", "integer", 7 * _DAY_MS,
            "Every segment is read in the background about once in this time; later where `scrub.bytes.per.second` "
            "does not get through all of them.",
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
            "How many replicas the partitions of a stream have where who creates it does not say, the broker's own "
            "streams included; fewer where the cluster has fewer nodes.",
            kafka=True, reload=True, minimum=1, maximum=32767, kafka_default="1",
            deviation="a cluster is there to lose nothing, so a stream has three replicas unless somebody says "
            "otherwise"),
    Setting("min.insync.replicas", "integer", 1,
            "Default of the stream setting of the same name, where it is changed for the whole cluster (Kafka's "
            "IncrementalAlterConfigs of all brokers); a node's own value is not looked at in a cluster.",
            kafka=True, dynamic=True, minimum=1, maximum=_INT32_MAX),
    Setting("log.roll.jitter.ms", "integer", 0,
            "Default of `segment.jitter.ms`.",
            kafka=True, dynamic=True, unit="ms", minimum=0, kafka_default="null: log.roll.jitter.hours (0) counts",
            deviation="the same: none; there is one name for them here"),
    Setting("quota.window.num", "integer", 11,
            "How many windows a client's rate is measured over.",
            kafka=True, minimum=1, maximum=1000),
    Setting("quota.window.size.seconds", "integer", 1,
            "How long one such window is, in seconds.",
            kafka=True, minimum=1, maximum=86_400),
    Setting("group.initial.rebalance.delay.ms", "integer", 3000,
            "How long an empty group waits for more members before its first rebalance.",
            kafka=True, unit="ms", minimum=0, maximum=_INT32_MAX),
    Setting("group.min.session.timeout.ms", "integer", 6000,
            "The shortest session timeout a member may ask for.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.max.session.timeout.ms", "integer", 1_800_000,
            "The longest session timeout a member may ask for.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.max.size", "integer", _INT32_MAX,
            "The most members of one group.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    *CLUSTER_NODE_SETTINGS,
    *CONSUMER_NODE_SETTINGS,
    Setting("metrics.partitions.max", "integer", MOST_SERIES,
            "The most series that `/metrics` shows of one metric; what is left out is counted in "
            "`duramen_series_left_out`.",
            minimum=1),
    Setting("offsets.topic.num.partitions", "integer", 50,
            "Partitions of `__consumer_offsets`; fixed when it is first used.",
            kafka=True, minimum=1, maximum=10_000),
    Setting("transaction.max.timeout.ms", "integer", 900_000,
            "The longest transaction timeout that a producer may ask for.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transactional.id.expiration.ms", "integer", 7 * _DAY_MS,
            "A transactional id that nobody has used for this long is forgotten.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "integer", 10_000,
            "How often transactions are looked through for those that are open for longer than their timeout; they are "
            "aborted.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", "integer", 3_600_000,
            "How often transactional ids are looked through for those to be forgotten.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("transaction.state.log.num.partitions", "integer", 50,
            "Partitions of `__transaction_state`; fixed when it is first used.",
            kafka=True, minimum=1, maximum=10_000),
    Setting("transaction.state.log.segment.bytes", "integer", 100 * MIB,
            "`segment.bytes` of `__transaction_state`; fixed when it is first used.",
            kafka=True, unit="bytes", minimum=1024, maximum=_INT32_MAX),
    Setting("offsets.retention.minutes", "integer", 10_080,
            "Offsets of a group without members are forgotten after this time.",
            kafka=True, unit="minutes", minimum=1, maximum=_INT32_MAX),
    Setting("offsets.retention.check.interval.ms", "integer", 600_000,
            "How often offsets are looked through for those to forget.",
            kafka=True, unit="ms", minimum=1),
    Setting("offset.metadata.max.bytes", "integer", 4096,
            "The longest note a client may commit with an offset.",
            kafka=True, unit="bytes", minimum=0, maximum=_INT32_MAX),
    Setting("producer.id.expiration.ms", "integer", _DAY_MS,
            "An idempotent producer that has written nothing for this long is forgotten.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    *NODE_SETTINGS,
)

GROUP = _by_name(*CONSUMER_GROUP_SETTINGS, *GROUP_SETTINGS)

STREAM = _by_name(
    Setting("durability", "choice", "sync",
            "What an acknowledgement means. `sync`: the record is on disk, covered by an fdatasync that began "
            "after it was written. `os`: it is written to the operating system; a crash of the process loses "
            "nothing, a power failure may lose the unsynced tail. `memory`: it is in bounded memory only; nothing"
            " survives a restart. A change takes effect at a segment roll, after everything before it is synced.",
            scope="stream", dynamic=True, choices=("sync", "os", "memory"), broker_default="log.durability"),
    Setting("cleanup.policy", "list", "delete",
            "`delete` drops old segments by the retention settings, `compact` keeps the last record of every key, and "
            "every record needs one; `compact,delete` does both, an empty list neither. With durability=memory nothing "
            "is compacted.",
            scope="stream", kafka=True, dynamic=True, choices=("compact", "delete"),
            broker_default="log.cleanup.policy"),
    Setting("retention.ms", "integer", 7 * _DAY_MS,
            "Segments whose newest record is older than this are deleted; -1 keeps them for ever.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=-1, broker_default="log.retention.ms"),
    Setting("retention.bytes", "integer", -1,
            "The oldest segments of a partition are deleted while it stays at least this large; -1 means no "
            "bound.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=-1, broker_default="log.retention.bytes"),
    Setting("retention.records", "integer", -1,
            "The oldest segments of a partition are deleted while it keeps at least this many records; -1 means "
            "no bound.",
            scope="stream", dynamic=True, unit="records", minimum=-1),
    Setting("memory.max.bytes", "integer", 16 * MIB,
            "With durability=memory: the most a partition holds; the oldest segments go first. A larger batch is "
            "held alone.",
            scope="stream", dynamic=True, unit="bytes", minimum=64 * KIB, maximum=_INT32_MAX),
    Setting("segment.bytes", "integer", 1024 * MIB,
            "A segment that would grow beyond this is closed and a new one begun.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=14, maximum=_INT32_MAX,
            broker_default="log.segment.bytes"),
    Setting("segment.ms", "integer", 7 * _DAY_MS,
            "A segment whose first record is older than this is closed and a new one begun; in streams that nobody "
            "writes to, when retention is next looked at.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=1, broker_default="log.roll.ms"),
    Setting("file.delete.delay.ms", "integer", 60_000,
            "How long the files of what was deleted stay: of a segment with names that end in `.deleted`, of a stream "
            "its directory. Nobody can read them any more; they go at once when the node stops, or after a crash.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.segment.delete.delay.ms"),
    Setting("max.message.bytes", "integer", 1_048_588,
            "The largest record batch, compressed.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=0, maximum=_INT32_MAX,
            broker_default="message.max.bytes"),
    Setting("message.timestamp.type", "choice", "CreateTime",
            "`CreateTime` keeps the producer's timestamps, `LogAppendTime` replaces them by the time of the "
            "append.",
            scope="stream", kafka=True, dynamic=True, choices=("CreateTime", "LogAppendTime"),
            broker_default="log.message.timestamp.type"),
    Setting("message.timestamp.before.max.ms", "integer", _INT64_MAX,
            "How far a producer's timestamp may lie before the broker's clock.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.message.timestamp.before.max.ms"),
    Setting("message.timestamp.after.max.ms", "integer", 3_600_000,
            "How far a producer's timestamp may lie after the broker's clock.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.message.timestamp.after.max.ms"),
    Setting("compression.type", "choice", "producer",
            "What batches are compressed with; `producer`: as the producer did. Batches that come in another form are "
            "compressed again, beside everything else, before they are appended; one that is larger than "
            "`max.message.bytes` then is refused.",
            scope="stream", kafka=True, dynamic=True, choices=_COMPRESSION, broker_default="compression.type"),
    Setting("compression.gzip.level", "integer", -1,
            "How hard gzip tries where `compression.type` asks for it: 1 to 9; 0 does not, -1 is gzip's default.",
            scope="stream", kafka=True, dynamic=True, minimum=-1, maximum=9, broker_default="compression.gzip.level"),
    Setting("compression.lz4.level", "integer", 9,
            "How hard lz4 tries where `compression.type` asks for it: 1 to 17; 9, the default, is the fast way.",
            scope="stream", kafka=True, dynamic=True, minimum=1, maximum=17, broker_default="compression.lz4.level"),
    Setting("compression.zstd.level", "integer", 3,
            "How hard zstd tries where `compression.type` asks for it.",
            scope="stream", kafka=True, dynamic=True, minimum=-131072, maximum=22,
            broker_default="compression.zstd.level"),
    Setting("max.decompressed.message.bytes", "integer", 2_147_483_639,
            "The largest that the records of one batch may be when they are decompressed, where the broker has to: to "
            "look for keys, for a time, or to compress them again. Never more than an eighth of `memory.limit.bytes`.",
            scope="stream", kafka=True, dynamic=True, unit="bytes", minimum=1, maximum=_INT32_MAX,
            broker_default="max.decompressed.message.bytes"),
    Setting("duplicate.window.ms", "integer", 120_000,
            "How long a `Nats-Msg-Id` is remembered; 0 turns de-duplication off.",
            scope="stream", dynamic=True, unit="ms", minimum=0, maximum=7 * _DAY_MS),
    Setting("nats.ack", "choice", "publish",
            "`publish` acknowledges each NATS message on its reply subject once it is stored; `never` leaves the "
            "reply subject to the application.",
            scope="stream", dynamic=True, choices=("publish", "never")),
    Setting("min.insync.replicas", "integer", 1,
            "How many replicas must have a record before acks=all is answered, and, as in Apache Kafka 4, never more "
            "than the stream has. Where neither the stream nor the cluster sets it, it is 2 for partitions with three "
            "replicas or more, the broker's own streams included, and else 1; replicas that a reassignment adds do "
            "not count. In force from feature level 2 on (`duramen cluster upgrade`). Apache Kafka's default is 1: "
            "there the last replica in sync may be the only one that has acknowledged records, and with it missing "
            "they are lost or waited for.",
            scope="stream", kafka=True, dynamic=True, minimum=1, maximum=_INT32_MAX,
            broker_default="min.insync.replicas"),
    Setting("min.synced.nodes", "integer", 1,
            "How many nodes must have synced a record before consumers are shown it; more than are in sync hold "
            "everything back.",
            scope="stream", minimum=1, maximum=32767),
    Setting("replication.topology", "choice", "fanout",
            "Who fetches from whom: `fanout`, every replica from the leader; `chain`, each from the one before it, in "
            "the order of the assignment; `tree`, two from each.",
            scope="stream", choices=("fanout", "chain", "tree")),
    Setting("read.replicas", "list", "",
            "Nodes that follow the stream's partitions beside their replicas and serve consumers, of their rack and "
            "who asks them: `all`, ids, `rack:NAME` for those of a rack, and `racks` for one in each rack that has no "
            "replica of a partition. Nobody waits for them: they are in no in-sync set and never lead.",
            scope="stream", dynamic=True, item=r"all|racks|rack:[^\s,]+|\d+",
            example="all, racks, rack:NAME or ids of nodes"),
    Setting("delete.retention.ms", "integer", _DAY_MS,
            "How long compaction keeps a tombstone, a record without a value, after it has seen it first.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.cleaner.delete.retention.ms"),
    Setting("min.cleanable.dirty.ratio", "number", 0.5,
            "A log is compacted once the part of its bytes that is not compacted yet, the active segment left out, is "
            "larger than this.",
            scope="stream", kafka=True, dynamic=True, minimum=0, maximum=1,
            broker_default="log.cleaner.min.cleanable.ratio"),
    Setting("min.compaction.lag.ms", "integer", 0,
            "Segments with a record younger than this are not compacted.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0,
            broker_default="log.cleaner.min.compaction.lag.ms"),
    Setting("max.compaction.lag.ms", "integer", _INT64_MAX,
            "A log with a record older than this that is not compacted yet is compacted, however little it is; the "
            "active segment is closed when it is older.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=1,
            broker_default="log.cleaner.max.compaction.lag.ms"),
    Setting("flush.messages", "integer", _INT64_MAX,
            "With durability=os: records of a partition are synced once there are this many that are not. The sync is "
            "made beside appends, which do not wait for it. durability=sync implies more: a sync before each "
            "acknowledgement; with durability=memory there is nothing to sync.",
            scope="stream", kafka=True, dynamic=True, minimum=1, broker_default="log.flush.interval.messages",
            idle_with=_FLUSH_IDLE_WITH),
    Setting("flush.ms", "integer", _INT64_MAX,
            "With durability=os: records of a partition are synced this long after the first that is not. As with "
            "`flush.messages`, durability=sync implies it, and with durability=memory it has no effect.",
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
            "How much earlier than `segment.ms` a segment may be closed for its age: each a part of this that is its "
            "own, so that those of many partitions are not closed at once.",
            scope="stream", kafka=True, dynamic=True, unit="ms", minimum=0, broker_default="log.roll.jitter.ms"),
    Setting("preallocate", "flag", False,
            "Preallocate segments.",
            scope="stream", kafka=True, dynamic=True, without_effect="the write-ahead log is preallocated instead"),
    Setting("unclean.leader.election.enable", "flag", False,
            "Where every replica that has all acknowledged records is down for a second, elect the most complete live "
            "one: the records that it lacks are lost then. Each such election is a warning in the log of every node. A "
            "node that is alone never does.",
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
