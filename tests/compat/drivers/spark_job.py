"""A job for Spark: `spark_job.py ADDRESS JARS DIRECTORY WRITTEN TRANSACTIONAL`; it prints what it found as JSON."""

import json
import sys

from pyspark.sql import SparkSession

ROWS = 1000


def main(address: str, jars: str, directory: str, written: str, transactional: str) -> None:
    """Write and read a topic, in a batch and as a stream; read another one's committed records."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    found: dict[str, object] = {}
    rows = spark.range(ROWS).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", written).save()

    def options(topic: str, isolation: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest",
            "kafka.isolation.level": isolation,
        }  # fmt: skip

    def batch(topic: str, isolation: str) -> list[str]:
        read = spark.read.format("kafka").options(**options(topic, isolation)).load()
        return sorted(row.value.decode() for row in read.select("value").collect())

    found["batch"] = batch(written, "read_uncommitted") == sorted(f"value {at}" for at in range(ROWS))
    stream = spark.readStream.format("kafka").options(**options(written, "read_committed")).load()
    query = (
        stream.selectExpr("cast(key as string)", "cast(value as string)")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .option("path", f"{directory}/out")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["stream"] = spark.read.parquet(f"{directory}/out").distinct().count() == ROWS
    found["committed"] = batch(transactional, "read_committed")
    found["uncommitted"] = batch(transactional, "read_uncommitted")
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
