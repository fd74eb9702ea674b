"""Filters of Spark's own Delta and Iceberg: JARS DIRECTORY LAKE FORMAT CONDITIONS; says those that lose rows.

Some lose the same rows of files that Spark itself wrote (a dictionary with 0.0 has nothing that equals -0.0): no table
can mend these, and they are left out.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_REPEATED = 500
jars, directory, lake, table_format, conditions = sys.argv[1:]
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
builder = SparkSession.builder.master("local[2]").appName("duramen")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
if table_format == "delta":
    table = spark.read.format("delta").load(f"{lake}/delta")
else:
    table = spark.read.table("duramen.duramen.iceberg")
asked = json.loads(Path(conditions).read_text())
# All conditions of a row at once, in which nothing is left out: what filters have to find.
told = table.selectExpr("number", *(f"{condition} AS is_{index}" for index, condition in enumerate(asked))).collect()
# Spark writes a dictionary only where it makes a file smaller.
often = table.crossJoin(spark.range(_REPEATED).select())
often.repartitionByRange(len(told), "number").write.parquet(f"{directory}/own")
own = spark.read.parquet(f"{directory}/own")


def numbers(found: DataFrame, condition: str) -> list[int]:
    return sorted(row.number for row in found.where(condition).select("number").distinct().collect())


lost = []
for index, condition in enumerate(asked):
    wanted = sorted(row.number for row in told if row[f"is_{index}"])
    found = numbers(table, condition)
    if found != wanted and found != numbers(own, condition):
        lost.append([condition, sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))])
spark.stop()
print(json.dumps(lost))
