"""A pipeline in Python: flights that left late, with the airline's name, from one stream into another.

duramen pipeline run examples/pipelines/late_flights.py
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from duramen.spark.pipelines import Pipeline

pipeline = Pipeline("late_flights", brokers=os.environ.get("BROKERS", "127.0.0.1:9092"))
pipeline.stream("flights", json="carrier STRING, flight INT, dep_delay INT", options={"startingOffsets": "earliest"})
pipeline.table("airlines", "airlines.csv", format="csv", options={"header": "true"})


@pipeline.step
def late(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """A step's parameters name what it reads."""
    return flights.where("dep_delay >= 60").join(sf.broadcast(airlines), "carrier", "left")


pipeline.sql("named", "SELECT carrier, coalesce(name, carrier) AS airline, flight, dep_delay FROM late")
pipeline.to_stream("late", "named", "late-flights", json=True, key="carrier")
