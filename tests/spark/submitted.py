"""A program for `spark-submit` and for Spark Connect: batch, streaming query and sink, on whatever master there is.

Takes the address of a node, two streams that are there, a directory and, for Spark Connect, the address of its server;
prints the numbers that it copied from one stream into the other.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def opened(remote: str) -> SparkSession:
    if remote:
        connected: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        return connected
    import duramen.spark

    return duramen.spark.session("submitted", config={"spark.ui.enabled": "false"})


def main(servers: str, stream: str, copies: str, directory: str, remote: str = "") -> None:
    spark = opened(remote)
    node = {"kafka.bootstrap.servers": servers}
    numbers = spark.range(3_000).select(sf.col("id").cast("string").alias("value"))
    numbers.write.format("duramen").mode("append").options(**node).save(stream)
    records = spark.readStream.format("duramen").options(**node, startingOffsets="earliest").load(stream)
    writer = records.select("value").writeStream.format("duramen").options(**node, topic=copies)
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.read.format("duramen").options(**node).load(copies).selectExpr("CAST(value AS STRING) AS value")
    copied = sorted(int(row.value) for row in found.collect())
    spark.stop()
    print(len(copied), copied == list(range(3_000)))


if __name__ == "__main__":
    main(*sys.argv[1:])
