"""Every option of Spark's Kafka source, in a batch and in a streaming query: taken, passed over, or refused."""

from typing import Any, Final

import pytest

from duramen.base.errors import OptionInvalid
from duramen.client.consumer import EARLIEST, LATEST
from duramen.spark.datasource import BatchReader, batch_reader_of
from duramen.spark.options import OPTIONS, WITHOUT_EFFECT, Options, Use
from duramen.spark.read.selection import Edge, ending, starting
from duramen.spark.read.snapshot_stream import stream_reader_of
from duramen.spark.read.stream import StreamReader

SERVERS: Final = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SELECTIONS: Final = ("subscribe", "subscribePattern", "assign", "path", "queues", "inventory")
TAKEN, PASSED_OVER = "taken", "passed over"
JSON: Final = "it must be JSON such as"
COUNT: Final = "it must be a whole number, at least 1"
FLAG: Final = "it must be true or false"

# An option, its value, and what a batch and a streaming query make of it: an error's words, or one of the above.
ROWS: Final = [
    ("kafka.bootstrap.servers", "a:1, b:2", TAKEN, TAKEN),
    ("kafka.bootstrap.servers", "", "kafka.bootstrap.servers is missing", "kafka.bootstrap.servers is missing"),
    ("path", "s", TAKEN, TAKEN),
    ("subscribe", "s", TAKEN, TAKEN),
    ("subscribe", " s ,, t, ", TAKEN, TAKEN),
    ("subscribe", " , ", "subscribe names no stream", "subscribe names no stream"),
    ("subscribePattern", "s-.*", TAKEN, TAKEN),
    ("subscribePattern", " ", "subscribePattern names no stream", "subscribePattern names no stream"),
    ("subscribePattern", "s(", "is not a regular expression", "is not a regular expression"),
    ("subscribePattern", "(?!s).*", "is not a regular expression", "is not a regular expression"),
    ("assign", '{"s": [0, 1]}', TAKEN, TAKEN),
    ("assign", "s", JSON, JSON),
    ("assign", '{"s": [-1]}', JSON, JSON),
    ("startingOffsets", "earliest", TAKEN, TAKEN),
    ("startingOffsets", " EARLIEST ", TAKEN, TAKEN),
    ("startingOffsets", "latest", "a batch cannot begin at the latest offset", TAKEN),
    ("startingOffsets", '{"s": {"0": 5, "1": -2}}', TAKEN, TAKEN),
    ("startingOffsets", '{"s": {"0": -1}}', "a batch cannot begin at the latest offset", TAKEN),
    ("startingOffsets", '{"s": {"0": -3}}', "offsets are at least 0, or -1", "offsets are at least 0, or -1"),
    ("startingOffsets", "soon", "must be earliest, latest or JSON", "must be earliest, latest or JSON"),
    ("endingOffsets", "latest", TAKEN, "endingOffsets is for batches"),
    ("endingOffsets", "Latest", TAKEN, "endingOffsets is for batches"),
    ("endingOffsets", "earliest", "a batch cannot end at the earliest offset", "endingOffsets is for batches"),
    ("endingOffsets", '{"s": {"0": -1}}', TAKEN, "endingOffsets is for batches"),
    ("endingOffsets", '{"s": {"0": -2}}', "a batch cannot end at the earliest offset", "endingOffsets is for batches"),
    ("startingTimestamp", " 1700000000000 ", TAKEN, TAKEN),
    ("startingTimestamp", "yesterday", "must be a time in ms since 1970", "must be a time in ms since 1970"),
    ("endingTimestamp", "1700000000000", TAKEN, "endingTimestamp is for batches"),
    ("endingTimestamp", "-1", "must be a time in ms since 1970", "endingTimestamp is for batches"),
    ("startingOffsetsByTimestamp", '{"s": {"0": 1700000000000}}', TAKEN, TAKEN),
    ("startingOffsetsByTimestamp", '{"s": {"0": -1}}', "a time is negative", "a time is negative"),
    ("startingOffsetsByTimestamp", "1700000000000", JSON, JSON),
    ("endingOffsetsByTimestamp", '{"s": {"0": 1700000000000}}', TAKEN, "endingOffsetsByTimestamp is for batches"),
    ("startingOffsetsByTimestampStrategy", "error", TAKEN, TAKEN),
    ("startingOffsetsByTimestampStrategy", "LATEST", TAKEN, TAKEN),
    ("startingOffsetsByTimestampStrategy", "earliest", "must be one of error, latest", "must be one of error, latest"),
    ("failOnDataLoss", "False", TAKEN, TAKEN),
    ("failOnDataLoss", "no", FLAG, FLAG),
    ("tier", "Hot", TAKEN, TAKEN),
    ("tier", "warm", "tier: 'warm' does not fit", "tier: 'warm' does not fit"),
    ("tableStorage", '{"s3.endpoint": "http://a:1"}', TAKEN, TAKEN),
    ("tableStorage", "s3", "tableStorage: it must be JSON such as", "tableStorage: it must be JSON such as"),
    ("tableStorage", '{"s3.endpont": "x"}', "s3.endpont of a table's storage; did you mean s3.endpoint?",
     "s3.endpont of a table's storage; did you mean s3.endpoint?"),
    ("parquetTo", "/lake/there", TAKEN, TAKEN),
    ("parquetStorage", '{"s3.endpoint": "http://a:1"}', TAKEN, TAKEN),
    ("parquetStorage", "s3", "parquetStorage: it must be JSON such as", "parquetStorage: it must be JSON such as"),
    ("includeHeaders", "true", TAKEN, TAKEN),
    ("includeHeaders", "1", FLAG, FLAG),
    ("columns", "offset, VALUE", TAKEN, TAKEN),
    ("columns", "ofset", "columns: there is no column 'ofset'; did you mean offset?",
     "columns: there is no column 'ofset'; did you mean offset?"),
    ("minPartitions", "8", TAKEN, TAKEN),
    ("minPartitions", "0", COUNT, COUNT),
    ("maxRecordsPerPartition", "1000", TAKEN, TAKEN),
    ("maxRecordsPerPartition", "-1", COUNT, COUNT),
    ("maxOffsetsPerTrigger", "1000", PASSED_OVER, TAKEN),
    ("maxOffsetsPerTrigger", "all", COUNT, COUNT),
    ("minOffsetsPerTrigger", "10", PASSED_OVER, TAKEN),
    ("maxTriggerDelay", "30s", PASSED_OVER, TAKEN),
    ("maxTriggerDelay", "soon", PASSED_OVER, "maxTriggerDelay: 'soon' does not fit"),
    ("kafka.group.id", "g", TAKEN, TAKEN),
    ("kafka.client.id", "me", TAKEN, TAKEN),
    ("kafka.request.timeout.ms", "1000", TAKEN, TAKEN),
    ("kafka.request.timeout.ms", "1s", "a number of milliseconds", "a number of milliseconds"),
    ("kafka.isolation.level", "READ_COMMITTED", TAKEN, TAKEN),
    ("kafka.max.partition.fetch.bytes", "1048576", TAKEN, TAKEN),
    ("kafka.fetch.max.bytes", "1048576", TAKEN, TAKEN),
    ("kafka.security.protocol", "plaintext", TAKEN, TAKEN),
    ("kafka.security.protocol", "SASL_SSL", "no encryption and no authentication", "no encryption and no"),
    ("kafka.ssl.truststore.location", "x", "no encryption and no authentication", "no encryption and no"),
    ("snapshot", "false", TAKEN, TAKEN),
    ("snapshot", "true", TAKEN, TAKEN),
    ("snapshot", '{"0": 17}', TAKEN, "a streaming query has one snapshot after the other"),
    ("snapshot", '{"s": {"0": 17}}', TAKEN, "a streaming query has one snapshot after the other"),
    ("snapshot", "yes", "snapshot: 'yes' does not fit", "a streaming query has one snapshot after the other"),
    ("queues", "mail", TAKEN, "a streaming query reads the operations of a space, with subscribe"),
    ("queues", " ", "queues names no queue space", "a streaming query reads the operations of a space"),
    ("inventory", "Topics", TAKEN, "inventory is for batches"),
    ("inventory", "streams", "must be one of topics, namespaces, tenants", "inventory is for batches"),
    ("server", "127.0.0.1:9644", TAKEN, TAKEN),
    ("checkpointLocation", "/x", PASSED_OVER, TAKEN),
    ("queryName", "q", PASSED_OVER, TAKEN),
    ("kafka.auto.offset.reset", "earliest", "say startingOffsets instead", "say startingOffsets instead"),
    ("kafka.enable.auto.commit", "false", "is not supported", "is not supported"),
    ("kafka.interceptor.classes", "x", "is not supported", "is not supported"),
    ("kafka.key.deserializer", "x", "keys are always binary", "keys are always binary"),
    ("kafka.value.deserializer", "x", "values are always binary", "values are always binary"),
    ("topic", "s", "topic is an option of the sink", "topic is an option of the sink"),
    ("kafka.acks", "all", "kafka.acks is an option of the sink", "kafka.acks is an option of the sink"),
    ("kafka.bootstrap.server", "x", "did you mean kafka.bootstrap.servers?", "did you mean kafka.bootstrap.servers?"),
    ("startOffsets", "x", "did you mean startingOffsets?", "did you mean startingOffsets?"),
    ("failOnDataloss ", "x", "did you mean failOnDataLoss?", "did you mean failOnDataLoss?"),
]  # fmt: skip


def options(use: Use, **given: str) -> Options:
    chosen = {name.lower() for name in given} & {name.lower() for name in SELECTIONS}
    return Options(SERVERS | ({} if chosen else {"subscribe": "s"}) | given, use)


def verdict(use: Use, name: str, value: str) -> str:
    reader: Any = batch_reader_of if use == "batch" else stream_reader_of
    try:
        made = options(use, **{name: value})
        reader(made)
    except OptionInvalid as error:
        return str(error)
    return PASSED_OVER if made.ignored else TAKEN


@pytest.mark.parametrize(("name", "value", "batch", "stream"), ROWS)
def test_every_option(name: str, value: str, batch: str, stream: str) -> None:
    for spelt in (name, name.lower(), name.upper()) if name in OPTIONS else (name,):
        assert batch in verdict("batch", spelt, value)
        assert stream in verdict("stream", spelt, value)


def test_no_option_is_left_out() -> None:
    known = {option.name for option in OPTIONS.values() if {"batch", "stream"} & set(option.uses)}
    idle = {name for name in known if OPTIONS[name].doc.startswith(WITHOUT_EFFECT)}
    assert "groupIdPrefix" in idle
    for name in idle:
        assert verdict("batch", name, "1") == verdict("stream", name, "1") == TAKEN
    assert known - idle == {name for name, *_ in ROWS} & known


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "exactly one of subscribe, subscribePattern, assign is needed; none was given"),
        ({"subscribe": "s", "subscribePattern": "s"}, "subscribe and subscribePattern were given"),
        ({"path": "s", "assign": '{"s": [0]}'}, "load('s') is short for subscribe: leave out assign"),
    ],
)
def test_exactly_one_way_to_choose(given: dict[str, str], said: str) -> None:
    for use, reader in (("batch", BatchReader), ("stream", StreamReader)):
        with pytest.raises(OptionInvalid) as caught:
            reader(Options(SERVERS | given, use))  # type: ignore[arg-type]
        assert said in str(caught.value)


BY_OFFSET, BY_TIME, AT_TIME = ('{"s": {"0": 7}}', '{"s": {"0": 1000}}', "2000")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"Offsets": BY_OFFSET}, "Offsets"),
        ({"Offsets": BY_OFFSET, "OffsetsByTimestamp": BY_TIME}, "OffsetsByTimestamp"),
        ({"Offsets": BY_OFFSET, "Timestamp": AT_TIME}, "Timestamp"),
        ({"OffsetsByTimestamp": BY_TIME, "Timestamp": AT_TIME}, "Timestamp"),
        ({"Offsets": BY_OFFSET, "OffsetsByTimestamp": BY_TIME, "Timestamp": AT_TIME}, "Timestamp"),
    ],
)
def test_a_time_for_all_goes_before_times_and_these_before_offsets(given: dict[str, str], expected: str | None) -> None:
    def edges(use: Use) -> tuple[Edge, Edge]:
        begins = {f"starting{name}": value for name, value in given.items()}
        ends = {f"ending{name}": value for name, value in given.items()} if use == "batch" else {}
        made = options(use, **begins, **ends)
        return starting(made, streaming=use == "stream"), ending(made)

    first, last = edges("batch")
    later, _ = edges("stream")
    if expected is None:
        assert (first.everywhere, last.everywhere, later.everywhere) == (EARLIEST, LATEST, LATEST)
    else:
        assert first.option == later.option == f"starting{expected}"
        assert last.option == f"ending{expected}"


@pytest.mark.parametrize("strategy", ["error", "latest"])
def test_a_time_that_none_has_is_an_error_at_the_start_unless_it_is_said_otherwise(strategy: str) -> None:
    made = options("batch", startingTimestamp="1", endingTimestamp="1", startingOffsetsByTimestampStrategy=strategy)
    assert starting(made, streaming=False).late == strategy
    assert ending(made).late == "latest"
    assert starting(options("batch", startingTimestamp="1"), streaming=False).late == "error"


@pytest.mark.parametrize("kind", ["Offsets", "OffsetsByTimestamp"])
def test_an_end_before_the_start_is_refused(kind: str) -> None:
    def reader(first: int, last: int) -> BatchReader:
        given = {f"starting{kind}": f'{{"s": {{"0": {first}}}}}', f"ending{kind}": f'{{"s": {{"0": {last}}}}}'}
        return BatchReader(options("batch", **given))

    reader(7, 7)
    if kind == "Offsets":
        reader(7, LATEST)
    with pytest.raises(OptionInvalid, match=rf"starting{kind} says 8 for s-0, which is after 7, where ending{kind}"):
        reader(8, 7)


def test_the_least_may_not_be_more_than_the_most() -> None:
    StreamReader(options("stream", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5"))
    with pytest.raises(OptionInvalid, match="minOffsetsPerTrigger is larger than maxOffsetsPerTrigger"):
        StreamReader(options("stream", minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5"))
