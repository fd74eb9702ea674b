"""Reads tables with Spark's own Delta and Iceberg: JARS DIRECTORY LAKE FORMAT/TABLE…; says them as a line of JSON."""

import json
import sys

from pyspark.sql import SparkSession
from tests.spark.tables.plainly import plain

jars, directory, lake, *tables = sys.argv[1:]
settings = {
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.duramen": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.duramen.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    "spark.sql.catalog.duramen.uri": f"jdbc:sqlite:{lake}/duramen-catalog.db",
    "spark.sql.catalog.duramen.jdbc.schema-version": "V1",
    "spark.sql.catalog.duramen.warehouse": lake,
    "spark.sql.warehouse.dir": directory,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master("local[1]").appName("duramen")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
found = {}
for table in tables:
    table_format, name = table.split("/")
    frame = (
        spark.read.format("delta").load(f"{lake}/{name}")
        if table_format == "delta"
        else spark.read.table(f"duramen.duramen.{name}")
    )
    rows = [row.asDict(recursive=True) for row in frame.orderBy("_stream_partition", "_offset").collect()]
    found[table] = [{name: plain(value) for name, value in row.items()} for row in rows]
spark.stop()
print(json.dumps(found))
