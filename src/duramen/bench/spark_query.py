"""What the measurement of Spark runs in a process of its own: count and sum over a stream, some times over.

It is run by path, by an interpreter that may have another PySpark and no Duramen: it imports PySpark only. The argument
is JSON with what `main` looks up; it prints one JSON line: seconds of each run, and what the runs found.
"""

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

__all__ = ["main"]


def main() -> None:
    """Read as the argument says, and print how long it took."""
    asked = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(f"local[{asked['cores']}]")
    for name, value in asked["config"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    took_s = []
    found: set[tuple[int, int]] = set()
    for _ in range(asked["runs"]):
        began_s = time.perf_counter()
        reader = spark.read.format(asked["format"]).option("kafka.bootstrap.servers", asked["servers"])
        records = reader.option("subscribe", asked["stream"]).load()
        (row,) = records.agg(sf.count("*").alias("n"), sf.sum(sf.length("value")).alias("size")).collect()
        took_s.append(time.perf_counter() - began_s)
        found.add((row["n"], row["size"]))
    print(json.dumps({"took_s": took_s, "found": sorted(found)}))
    spark.stop()


if __name__ == "__main__":
    main()
