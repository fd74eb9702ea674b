"""A program: batches and streaming queries from a stream and into another, with whatever PySpark is installed.

Takes the address of a node, two streams that are there and a directory; prints what it saw as one line of JSON.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import duramen.spark
from duramen.spark import decode


def main(servers: str, stream: str, copies: str, directory: str) -> None:
    spark = duramen.spark.session("reading and writing", "local[2]", config={"spark.ui.enabled": "false"})
    node = {"kafka.bootstrap.servers": servers}

    def numbered(first: int, end: int) -> None:
        headers = sf.array(sf.struct(sf.lit("of").alias("key"), sf.lit("numbers").cast("binary").alias("value")))
        rows = spark.range(first, end).select(
            sf.to_json(sf.struct(sf.col("id").alias("number"))).alias("value"),
            (sf.col("id") % 2).cast("int").alias("partition"),
            headers.alias("headers"),
        )
        rows.write.format("duramen").mode("append").options(**node).save(stream)

    def batch(name: str, **options: str) -> DataFrame:
        return spark.read.format("duramen").options(**node, **options).load(name)

    def copied() -> list[dict[str, Any]]:
        """What a query's progress says of its source, micro-batch by micro-batch; run again it goes on."""
        read = spark.readStream.format("duramen").options(**node, startingOffsets="earliest").load(stream)
        writer = read.select("key", "value", "partition").writeStream.format("duramen").options(**node, topic=copies)
        query = writer.option("checkpointLocation", f"{directory}/copied").trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(one.json)["sources"][0] for one in query.recentProgress if one.numInputRows]

    numbered(0, 5_000)
    first = copied()
    numbered(5_000, 5_100)
    second = copied()
    numbers = decode.json(batch(copies), "number LONG").select("number")
    found = sorted(row.number for row in numbers.collect())
    said = {
        "version": spark.version,
        "rows": batch(stream).where("partition = 1 AND offset < 10").count(),
        "headers": batch(stream, includeHeaders="true").select("headers").first()[0][0].key,  # type: ignore[index]
        "copied": found == list(range(5_100)),
        "progress": [[one["numInputRows"] for one in run] for run in (first, second)],
        "description": second[0]["description"],
        "metrics": sorted(second[0].get("metrics") or {}),
    }
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
