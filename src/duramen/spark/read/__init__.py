"""Reading with Spark: `spark.read` and `spark.readStream` with `format("duramen")`."""
