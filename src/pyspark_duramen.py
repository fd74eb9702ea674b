"""Spark registers `format("duramen")` through the name of this module: a top-level `pyspark_<format>`."""
