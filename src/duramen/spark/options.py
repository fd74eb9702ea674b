"""Every option of `format("duramen")` as data, and their checks. Pure.

Names, meanings and defaults are those of Spark's Kafka source and sink. An option with `refused` is known but not
allowed; `refused` is the reason in its error. Option names are case-insensitive.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from duramen.base.catalogue.tables import storage_problem
from duramen.base.errors import OptionInvalid

__all__ = ["OPTIONS", "WITHOUT_EFFECT", "Options", "ReadOption", "Use"]

Use = Literal["source", "batch", "stream", "sink"]
"""`source` is a batch or a stream that is not distinguished yet."""

Kind = Literal["text", "flag", "count", "time"]

_BATCH: Final = ("source", "batch")
_STREAM: Final = ("source", "stream")
_SOURCE: Final = ("source", "batch", "stream")
_SINK: Final = ("sink",)
_ALL: Final = (*_SOURCE, *_SINK)
_NO_TLS: Final = "there is no encryption and no authentication yet"


class ReadOption(NamedTuple):
    """One option: its uses, its meaning, its default."""

    name: str
    uses: tuple[str, ...]
    doc: str
    default: str = ""
    kind: Kind = "text"
    refused: str = ""

    @property
    def expected(self) -> str:
        """The description of valid values."""
        return {
            "text": "text",
            "flag": "true or false",
            "count": "a whole number, at least 1",
            "time": "a number of milliseconds, at least 1",
        }[self.kind]


WITHOUT_EFFECT: Final = "Accepted, without effect: "
"""The start of the documentation of options without effect."""

# fmt: off
_OPTIONS: Final = (
    ReadOption("kafka.bootstrap.servers", _ALL,
           "Addresses of brokers: HOST:PORT, separated by commas. Required, but for queues and inventory."),
    ReadOption("path", _ALL,
           "The argument of `load`, `save` and `start`: short for `subscribe`, in a sink for `topic`."),
    ReadOption("subscribe", _SOURCE,
           "Streams to read, separated by commas. Exactly one of subscribe, subscribePattern and assign is required."),
    ReadOption("subscribePattern", _SOURCE,
           "Streams to read, as a regular expression (RE2) that matches the name or a part of it (^flights$ is the"
           " whole name). A streaming query finds new streams while it runs."),
    ReadOption("assign", _SOURCE,
           'Partitions to read, as JSON: {"flights": [0, 1]}.'),
    ReadOption("startingOffsets", _SOURCE,
           'The start: earliest, latest, or JSON with every partition: {"flights": {"0": 23, "1": -2}}, where -2 is the'
           " earliest and -1 the latest offset. Not latest in a batch. A streaming query uses it only without a"
           " checkpoint.",
           "earliest in a batch and with snapshot, else latest"),
    ReadOption("startingTimestamp", _SOURCE,
           "The start: the first record of each partition at or after this time in ms. Takes precedence over"
           " startingOffsetsByTimestamp and startingOffsets."),
    ReadOption("startingOffsetsByTimestamp", _SOURCE,
           'The same with a time for every partition: {"flights": {"0": 1700000000000}}. Takes precedence over'
           " startingOffsets."),
    ReadOption("startingOffsetsByTimestampStrategy", _SOURCE,
           "What to do if there is no such record: error, or latest.", "error"),
    ReadOption("endingOffsets", _BATCH,
           "The end: latest, or JSON with every partition, where -1 is the latest offset. Not earliest.", "latest"),
    ReadOption("endingTimestamp", _BATCH,
           "The end: before the first record at or after this time in ms, or the latest offset if there is none. Takes"
           " precedence over the other two."),
    ReadOption("endingOffsetsByTimestamp", _BATCH,
           "The same with a time for every partition. Takes precedence over endingOffsets."),
    ReadOption("failOnDataLoss", _SOURCE,
           "Whether to fail if records that should be read are gone (retention, a deleted stream, a stream that was"
           " created again). The error says which, why and since when. With false the loss is logged, and the query"
           " continues. Of queues and the inventory: whether to fail if a shard is lost or has no leader; with false"
           " the query reads the other shards.",
           "true", "flag"),
    ReadOption("tier", _SOURCE,
           "The source of a stream with a table (docs/guides/tables.md): hot, its log; cold, its table; all, both, with"
           " every offset once. Offsets are the same in each.",
           "all for a stream with a table, hot for others"),
    ReadOption("tableStorage", _SOURCE,
           'Access to the storage of tables, as JSON: {"s3.endpoint": "http://127.0.0.1:9000"}. Missing values come'
           " from the environment (AWS_…)."),
    ReadOption("snapshot", _SOURCE,
           "Read keyed streams as snapshots: each key once, at its newest record, deleted ones left out. true is the"
           ' newest snapshot; JSON with the offset of each partition, {"0": 17}, in a batch is an older one, of several'
           ' streams {"flights": {"0": 17}}. In a streaming query the first micro-batch is the newest snapshot, unless'
           " startingOffsets says otherwise; each later one has the changes since the previous one, with null values"
           " for deleted keys. It cannot be combined with tier and failOnDataLoss, nor, in a batch, with the options"
           " for the start and the end.",
           "false"),
    ReadOption("queues", _SOURCE,
           "A queue space. A batch reads the entries of all its queues as they are when the query is planned: queue,"
           " position, version, key, value, headers, enqueued_at. A shard is a Spark partition; minPartitions divides"
           " shards. A streaming query reads the operations of a space with subscribe."),
    ReadOption("inventory", _SOURCE,
           "topics, namespaces or tenants: a batch reads those of the inventory as they are when it is planned."),
    ReadOption("server", _SOURCE,
           "Of snapshots, queues and the inventory: HOST:PORT of a node's HTTP address.",
           "DURAMEN_SERVER of the driver, else port 9644 of the first of kafka.bootstrap.servers"),
    ReadOption("includeHeaders", _ALL,
           "Whether rows have a column `headers`. A sink writes an existing column in any case.",
           "false", "flag"),
    ReadOption("columns", _SOURCE,
           "Only these columns, in this order, separated by commas: offset,value. Others are not decoded. headers needs"
           " no includeHeaders here."),
    ReadOption("parquetTo", _SOURCE,
           "A directory into which the tasks write the records as Parquet files. The rows of the frame describe the"
           " files: path, size_bytes, statistics. `duramen.spark.write_parquet` and `stream_parquet` set it and commit"
           " the files; pipelines do so if a sink copies a stream unchanged."),
    ReadOption("parquetStorage", _SOURCE,
           "Access to a parquetTo on S3, as JSON like tableStorage."),
    ReadOption("minPartitions", _SOURCE,
           "Split long partitions so that there are at least this many Spark tasks.", "", "count"),
    ReadOption("maxRecordsPerPartition", _SOURCE,
           "Split long partitions so that no Spark task reads more records than this.", "", "count"),
    ReadOption("maxOffsetsPerTrigger", _STREAM,
           "The largest number of records in a micro-batch, distributed by the size of the partitions. No effect with"
           " snapshot.", "", "count"),
    ReadOption("minOffsetsPerTrigger", _STREAM,
           "Wait for this many records, or for maxTriggerDelay. The first micro-batch of a run never waits.",
           "", "count"),
    ReadOption("maxTriggerDelay", _STREAM,
           "How long minOffsetsPerTrigger may wait: 30s, 15m, 1h.", "15m"),
    ReadOption("kafka.group.id", _SOURCE,
           "Of a streaming query: the consumer group to which it commits processed offsets, so that Kafka's tools show"
           " its lag; by default the query's name. The query itself continues from its checkpoint."),
    ReadOption("kafka.client.id", _ALL,
           "The client id of the connections.", "duramen-spark"),
    ReadOption("kafka.request.timeout.ms", _ALL,
           "The time limit for connections to a broker, and for responses.", "30000", "time"),
    ReadOption("kafka.isolation.level", _SOURCE,
           "read_committed: records of committed transactions, each transaction in one micro-batch or batch."
           " read_uncommitted: all records of the log, the default of Spark's Kafka source; from a table those that the"
           " log has deleted.",
           "read_committed"),
    ReadOption("kafka.max.partition.fetch.bytes", _SOURCE,
           "The largest size of a partition's records in one response, in bytes.", "4194304", "count"),
    ReadOption("kafka.fetch.max.bytes", _SOURCE,
           "The largest size of the records in one response, in bytes; at least one batch is returned.",
           "67108864", "count"),
    ReadOption("kafka.security.protocol", _ALL,
           f"PLAINTEXT; {_NO_TLS}.", "PLAINTEXT"),
    ReadOption("topic", _SINK,
           "The stream to write to; takes precedence over the column `topic`."),
    ReadOption("kafka.compression.type", _SINK,
           "none, gzip, snappy, lz4 or zstd.", "none"),
    ReadOption("kafka.batch.size", _SINK,
           "The size of the records, before compression, at which a batch is sent, in bytes.", "524288", "count"),
    ReadOption("kafka.acks", _SINK,
           "all, or -1, which is the same: the sink always waits until a record is stored according to the stream's"
           " durability.", "all"),
    ReadOption("kafka.enable.idempotence", _SINK,
           "true: within one task a record is never stored twice, even if it is sent again.", "true", "flag"),
    ReadOption("exactlyOnce", _SINK,
           "true: every batch is stored exactly once, whatever is repeated or killed; false: at least once, as by"
           " Spark's Kafka sink; auto: exactly once with Duramen's brokers, else at least once, which is logged.",
           "auto"),
    ReadOption("kafka.transaction.timeout.ms", _SINK,
           "The time after which a task's transaction is aborted if its batch is not decided. At most the brokers'"
           " transaction.max.timeout.ms.", "900000", "time"),
    ReadOption("checkpointLocation", (*_STREAM, *_SINK),
           "Spark's own: where a streaming query keeps its checkpoint."),
    ReadOption("queryName", (*_STREAM, *_SINK),
           "Spark's own: the name of a streaming query."),
    ReadOption("groupIdPrefix", _SOURCE,
           f"{WITHOUT_EFFECT}reading needs no consumer group."),
    ReadOption("kafkaConsumer.pollTimeoutMs", _SOURCE,
           f"{WITHOUT_EFFECT}kafka.request.timeout.ms bounds every wait.", "", "time"),
    ReadOption("fetchOffset.numRetries", _SOURCE,
           f"{WITHOUT_EFFECT}what fails for the moment is tried again until kafka.request.timeout.ms is over."),
    ReadOption("fetchOffset.retryIntervalMs", _SOURCE,
           f"{WITHOUT_EFFECT}the pauses between attempts grow by themselves."),
    *(
        ReadOption(f"kafka.{name}", uses, f"{WITHOUT_EFFECT}Kafka's own tuning of its Java clients.")
        for uses, names in (
            (_ALL, ("client.dns.lookup", "client.rack", "connections.max.idle.ms", "metadata.max.age.ms",
                    "auto.include.jmx.reporter", "enable.metrics.push", "metadata.recovery.rebootstrap.trigger.ms",
                    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
                    "metrics.sample.window.ms",
                    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries",
                    "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes",
                    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms")),
            (_SOURCE, ("allow.auto.create.topics", "auto.commit.interval.ms", "check.crcs", "default.api.timeout.ms",
                       "exclude.internal.topics", "fetch.max.wait.ms", "fetch.min.bytes", "group.instance.id",
                       "group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "max.poll.interval.ms",
                       "max.poll.records", "partition.assignment.strategy", "session.timeout.ms")),
            (_SINK, ("buffer.memory", "delivery.timeout.ms", "linger.ms", "max.block.ms",
                     "max.in.flight.requests.per.connection", "max.request.size")),
        )
        for name in names
    ),
    ReadOption("kafka.auto.offset.reset", _SOURCE, "Refused, as in Spark's Kafka source.",
           refused="say startingOffsets instead; Spark keeps track of what has been read"),
    ReadOption("kafka.enable.auto.commit", _SOURCE, "Refused, as in Spark's Kafka source.",
           refused="Spark keeps track of what has been read in its checkpoint"),
    ReadOption("kafka.interceptor.classes", _ALL, "Refused, as in Spark's Kafka source.",
           refused="keys and values are always read and written as they are"),
    ReadOption("kafka.key.deserializer", _SOURCE, "Refused, as in Spark's Kafka source.",
           refused="keys are always binary; convert them with a DataFrame operation"),
    ReadOption("kafka.value.deserializer", _SOURCE, "Refused, as in Spark's Kafka source.",
           refused="values are always binary; convert them with a DataFrame operation"),
    ReadOption("kafka.key.serializer", _SINK, "Refused, as in Spark's Kafka sink.",
           refused="keys are always strings or binary; convert them with a DataFrame operation"),
    ReadOption("kafka.value.serializer", _SINK, "Refused, as in Spark's Kafka sink.",
           refused="values are always strings or binary; convert them with a DataFrame operation"),
    ReadOption("kafka.partitioner.class", _SINK, "Refused: the sink cannot run Java classes.",
           refused="give the rows a column `partition` instead"),
    ReadOption("kafka.transactional.id", _SINK, "Refused: every attempt of a task has a transaction of its own.",
           refused="the sink names the transaction of every attempt of a task itself"),
)
# fmt: on

OPTIONS: Final[Mapping[str, ReadOption]] = MappingProxyType({option.name: option for option in _OPTIONS})
_BY_LOWER: Final = {name.lower(): option for name, option in OPTIONS.items()}
_SECURE: Final = ("kafka.ssl.", "kafka.sasl.", "kafka.security.")


class Options:
    """The options of one read or write, by their canonical names."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        """Raises OptionInvalid for an unknown name or an invalid value."""
        self._values: dict[str, str] = {}
        self.ignored: list[str] = []  # known, without effect here
        for name, value in given.items():
            option = _known(name, use)
            if option.refused:
                raise OptionInvalid(f"{option.name} is not supported: {option.refused}")
            if use == "stream" and option.uses == _BATCH:
                raise OptionInvalid(f"{option.name} is for batches: a streaming query has no end")
            checked = _checked(option, value)
            if use in option.uses:
                self._values[option.name] = checked
            else:
                self.ignored.append(option.name)
        if not self.text("kafka.bootstrap.servers") and not (self.given("queues") or self.given("inventory")):
            raise OptionInvalid("kafka.bootstrap.servers is missing: the HOST:PORT of a broker's Kafka address")
        if self.text("kafka.security.protocol").upper() != "PLAINTEXT":
            raise OptionInvalid(f"kafka.security.protocol: {self.text('kafka.security.protocol')!r}; {_NO_TLS}")

    def given(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._values

    def text(self, name: str) -> str:
        """Its value, or its default."""
        return self._values.get(name, OPTIONS[name].default)

    def flag(self, name: str) -> bool:
        """The value of a flag."""
        return self.text(name) == "true"

    def number(self, name: str) -> int | None:
        """The value of a count or a time in ms; None if there is neither value nor default."""
        text = self.text(name)
        return int(text) if text else None

    def storage(self, name: str) -> dict[str, str]:
        """The storage options of an option. Raises OptionInvalid."""
        try:
            found = json.loads(self.text(name) or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise OptionInvalid(f'{name}: it must be JSON such as {{"s3.endpoint": "http://127.0.0.1:9000"}}')
        for problem in filter(None, map(storage_problem, found)):
            raise OptionInvalid(f"{name}: {problem}")
        return found

    def one_of(self, name: str, choices: Iterable[str]) -> str:
        """Its value, in lower case. Raises OptionInvalid if it is none of `choices`."""
        value = self.text(name).strip().lower()
        if value not in choices:
            raise OptionInvalid(f"{name}: {self.text(name)!r} does not fit; it must be one of {', '.join(choices)}")
        return value


def _known(name: str, use: Use) -> ReadOption:
    option = _BY_LOWER.get(name.lower())
    if option is not None and ("sink" in option.uses if use == "sink" else set(option.uses) & set(_SOURCE)):
        return option
    if option is not None:
        other, this = ("source", "sink") if use == "sink" else ("sink", "source")
        raise OptionInvalid(f"{option.name} is an option of the {other}, not of the {this}")
    if name.lower().startswith(_SECURE):
        raise OptionInvalid(f"{name} is not supported: {_NO_TLS}")
    usable = [one.name for one in OPTIONS.values() if not one.refused and use in one.uses]
    near = difflib.get_close_matches(name.lower(), [known.lower() for known in usable], n=1, cutoff=0.6)
    hint = f"; did you mean {_BY_LOWER[near[0]].name}?" if near else "; docs/doors/spark.md lists them all"
    raise OptionInvalid(f"there is no option {name} here{hint}")


def _checked(option: ReadOption, value: str) -> str:
    text = value.strip()
    if option.kind == "flag":
        text = text.lower()
        fits = text in ("true", "false")
    elif option.kind in ("count", "time"):
        fits = text.isascii() and text.isdigit() and 0 < int(text) < 1 << 63
    else:
        fits = True
    if not fits:
        raise OptionInvalid(f"{option.name}: {value!r} does not fit; it must be {option.expected}")
    return text
