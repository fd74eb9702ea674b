"""Tables that pipelines read: what the formats say of their files counts, wherever these lie."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from tests.spark.tables.s3 import s3_with_a_lake

from duramen.base.errors import TableForeign, TableStorageFailed
from duramen.spark.pipelines.tables import delta_frame, iceberg_frame
from duramen.spark.tables.port import Storage

AT = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.struct([pa.field("tag", pa.string())]))),
    ]
)


def rows(first: int, end: int) -> list[dict[str, Any]]:
    names = ["plain", "with space/and %20", "é", None]
    return [
        {
            "n": number,
            "name": names[number % 4],
            "day": date(2024, 1, 1 + number % 3),
            "at": AT,
            "tags": [{"tag": str(number)}] * (number % 3),
        }
        for number in range(first, end)
    ]


def shown(frame: DataFrame) -> list[dict[str, Any]]:
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(found, key=lambda row: int(row["n"]))


def expected(end: int) -> list[dict[str, Any]]:
    return [{**row, "at": AT.astimezone().replace(tzinfo=None)} for row in rows(0, end)]


@pytest.mark.variants(1)
@pytest.mark.parametrize("partition_by", [[], ["name"], ["day", "name"]])
def test_a_delta_table(spark: SparkSession, tmp_path: Path, partition_by: list[str]) -> None:
    where = tmp_path / "a table"
    write_deltalake(where, pa.Table.from_pylist(rows(0, 10), schema=SCHEMA), partition_by=partition_by)
    wider = pa.schema([*SCHEMA, pa.field("late", pa.int32())])
    more = [{**row, "late": 1} for row in rows(10, 12)]
    write_deltalake(
        where, pa.Table.from_pylist(more, schema=wider), partition_by=partition_by, mode="append", schema_mode="merge"
    )
    frame = delta_frame(spark, Storage(str(where)))
    found = [row | {"late": row["late"] or 0} for row in shown(frame)]
    assert found == [{**row, "late": int(row["n"] >= 10)} for row in expected(12)]
    assert frame.where("name = 'plain' AND day = '2024-01-01'").count() == 1


@pytest.mark.long
def test_an_iceberg_table(spark: SparkSession, tmp_path: Path) -> None:
    catalog = load_catalog(
        "duramen", type="sql", uri=f"sqlite:///{tmp_path}/duramen-catalog.db", warehouse=str(tmp_path)
    )
    catalog.create_namespace("duramen")
    table = catalog.create_table("duramen.lake", SCHEMA, location=str(tmp_path / "lake"))
    assert shown(iceberg_frame(spark, Storage(str(tmp_path / "lake")))) == []
    table.append(pa.Table.from_pylist(rows(0, 10), schema=SCHEMA))
    with table.update_schema() as changing:
        changing.rename_column("name", "called")
    table.delete("n = 9")
    found = shown(iceberg_frame(spark, Storage(str(tmp_path / "lake"))))
    assert found == [{("called" if name == "name" else name): it for name, it in row.items()} for row in expected(9)]


@pytest.mark.long
def test_tables_on_s3(spark: SparkSession, tmp_path: Path) -> None:
    with s3_with_a_lake() as options:
        to_s3 = {
            "AWS_ENDPOINT_URL": options["s3.endpoint"], "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag",
        }  # fmt: skip
        made = pa.Table.from_pylist(rows(0, 10), schema=SCHEMA)
        for index, partition_by in enumerate(([], ["name"])):
            where = f"s3://lake/delta-{index}"
            write_deltalake(where, made, partition_by=partition_by, storage_options=to_s3)
            assert shown(delta_frame(spark, Storage(where, options))) == expected(10)
        uri = f"sqlite:///{tmp_path}/catalog.db"
        catalog = load_catalog("duramen", type="sql", uri=uri, warehouse="s3://lake", **options)
        catalog.create_namespace("duramen")
        catalog.create_table("duramen.iced", SCHEMA, location="s3://lake/iced").append(made)
        iced = options | {"catalog.type": "sql", "catalog.uri": uri}
        assert shown(iceberg_frame(spark, Storage("s3://lake/iced", iced))) == expected(10)
        with pytest.raises(TableForeign, match="there is no Delta table s3://lake/nothing"):
            delta_frame(spark, Storage("s3://lake/nothing", options))
        with pytest.raises(TableForeign, match="there is no Iceberg table s3://lake/none in its catalog"):
            iceberg_frame(spark, Storage("s3://lake/none", iced))
        with pytest.raises(TableStorageFailed, match="s3://pond/table: "):
            delta_frame(spark, Storage("s3://pond/table", options))
