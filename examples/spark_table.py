"""Read the stream `orders` as a table in Spark, and add up what was ordered.

python examples/spark_table.py [127.0.0.1:9092]
"""

import sys

from pyspark.sql import functions

from duramen.spark.launching.sessions import make_session

spark = make_session("orders")
orders = (
    spark.read.format("duramen")
    .option("kafka.bootstrap.servers", sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
    .load("orders")
    .select("offset", functions.from_json(functions.col("value").cast("string"), "order INT, amount INT").alias("it"))
    .select("offset", "it.*")
)
orders.orderBy("offset").show()
orders.select(functions.sum("amount").alias("total")).show()
spark.stop()
