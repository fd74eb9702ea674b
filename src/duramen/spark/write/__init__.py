"""Writing with Spark: `df.write` and `df.writeStream` with `format("duramen")`."""
