"""`duramen.spark.decode`: columns out of values on a DataFrame, in Spark."""

import io
import json

import fastavro
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StructField, StructType

from duramen.base.errors import OptionInvalid
from duramen.spark import decode

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def test_json_with_a_schema_without_one_and_into_one_column(spark: SparkSession) -> None:
    values = [(1, b'{"a": 1, "n": {"x": [0.5]}}'), (2, b"nonsense"), (3, None), (4, b'{"a": "x"}')]
    records = spark.createDataFrame(values, "number INT, value BINARY").repartition(2)
    for found in (decode.json(records, "a INT, n STRUCT<x: ARRAY<FLOAT>>"), decode.json(records)):
        assert found.schema.simpleString() == (
            "struct<number:int,value:binary,a:bigint,n:struct<x:array<double>>,_error:string>"
        )
        rows = {row.number: row for row in found.collect()}
        assert (rows[1].a, rows[1].n.x, rows[1]._error) == (1, [0.5], None)
        assert (rows[2].a, rows[2].n) == (None, None)
        assert rows[2]._error.startswith("not a JSON object")
        assert rows[3]._error is None
        assert rows[4]._error == "does not fit the columns: Expected `int | null`, got `str` - at `$.a`"
    inside = decode.json(records, StructType([StructField("value", IntegerType())]), into="json", error="why")
    assert inside.schema.simpleString() == "struct<number:int,value:binary,json:struct<value:bigint>,why:string>"
    assert inside.where("why is not null").count() == 1
    text = records.selectExpr("number", "cast(value as string) as text")
    assert decode.json(text, "a INT", column="text").where("a = 1").count() == 1


@pytest.mark.long
def test_types_of_spark_are_read_as_from_json_reads_them(spark: SparkSession) -> None:
    value = (
        b'{"day": "2020-01-01", "at": "2020-01-01T00:00:00.123456789Z", "seen": 1577836800, "counts": {"x": 1}, '
        b'"raw": "QUJD", "price": 12.545, "id": 7, "inside": [{"m": {"k": "2020-01-01 12"}}]}'
    )
    schema = (
        "day DATE, at TIMESTAMP, seen TIMESTAMP, counts MAP<STRING, BIGINT>, raw BINARY, price DECIMAL(6,2), "
        "id STRING, inside ARRAY<STRUCT<m: MAP<STRING, TIMESTAMP_NTZ>>>"
    )
    records = spark.createDataFrame([(value,), (b'{"day": 5}',), (b'{"counts": {"x": "1"}}',)], "value BINARY")
    found = decode.json(records, schema)
    text = sf.from_json(sf.col("value").cast("string"), schema)
    good = found.where("_error is null").withColumn(
        "same", sf.to_json(sf.struct(*found.columns[1:-1])) == sf.to_json(text)
    )
    assert [row.same for row in good.select("same").collect()] == [True]
    assert [row._error for row in found.select("_error").where("_error is not null").collect()] == [
        "does not fit the columns: Expected `date | null`, got `int` - at `$.day`",
        "does not fit the columns: Expected `int | null`, got `str` - at `$.counts.x`",
    ]
    assert decode.json(records, "price STRING, at STRING").where("price = '12.545'").count() == 1


def test_what_json_cannot_become_is_refused_before_anything_runs(spark: SparkSession) -> None:
    records = spark.createDataFrame([(b"{}",)], "value BINARY")
    for kind in (
        "VARIANT",
        "ARRAY<VARIANT>",
        "STRUCT<v: VARIANT>",
        "MAP<STRING, VARIANT>",
        "MAP<INT, INT>",
        "INTERVAL DAY",
        "INTERVAL YEAR",
        "VOID",
        "TIME",
        "CHAR(2)",
    ):
        with pytest.raises(OptionInvalid, match=r"the column a\S* cannot be made of JSON"):
            decode.json(records, f"a {kind}")
    with pytest.raises(OptionInvalid, match="as VARIANT; take STRING and convert that"):
        decode.json(records, "a VARIANT")


def test_numbers_that_no_column_has_room_for(spark: SparkSession) -> None:
    huge = b"9" * 5000
    values = [b'{"a": 1}', b'{"a": %s}' % huge, b'{"a": 3, "b": %s}' % huge]
    records = spark.createDataFrame([(value,) for value in values], "value BINARY").coalesce(1)
    sampled = decode.json(records)
    assert sampled.schema.simpleString() == "struct<value:binary,a:bigint,b:bigint,_error:string>"
    assert [(row.a, row._error is None) for row in sampled.collect()] == [(1, True), (None, False), (None, False)]
    doubles = decode.json(records, "a DOUBLE")
    assert [(row.a, row._error is None) for row in doubles.collect()] == [(1.0, True), (None, False), (3.0, True)]


def test_avro(spark: SparkSession) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(FLIGHT), {"id": 7, "counts": {"k": 1}, "at": 1_700_000_000_000_000}
    )
    records = spark.createDataFrame(
        [(out.getvalue(),), (b"\0\0\0\0\x01" + out.getvalue(),), (b"\xff",)], "value BINARY"
    )
    found = decode.avro(records, json.dumps(FLIGHT))
    assert [(row.id, row.counts) for row in found.where("_error is null").collect()] == [(7, {"k": 1})] * 2
    assert found.where("year(at) = 2023").count() == 2
    assert found.where("_error is not null").count() == 1


def test_what_is_wrong_is_said_before_anything_runs(spark: SparkSession) -> None:
    records = spark.createDataFrame([(b"{}",)], "value BINARY")
    with pytest.raises(OptionInvalid, match="there are columns value already; give into="):
        decode.json(records, "value INT")
    with pytest.raises(OptionInvalid, match="there is no column payload; there are value"):
        decode.json(records, "a INT", column="payload")
    with pytest.raises(OptionInvalid, match="'INT' is not the schema of columns"):
        decode.json(records, "INT")
    with pytest.raises(OptionInvalid, match="need a schema, or the URL"):
        decode.avro(records)
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    with pytest.raises(OptionInvalid, match="a streaming query"):
        decode.json(stream)
    assert decode.json(stream, "a INT").isStreaming
