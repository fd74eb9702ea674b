"""The delays that pandas computes from the raw file, without Duramen's code."""

from pathlib import Path

import pandas as pd

from duramen.demo.delays import Delay

__all__ = ["expected_delays"]


def expected_delays(flights: Path, limit: int | None = None) -> list[Delay]:
    """The delays by carrier and hour of the zipped table, of its first `limit` rows."""
    rows = pd.read_csv(flights, usecols=["carrier", "hour", "dep_delay"], nrows=limit)
    sums = rows.groupby(["carrier", "hour"])["dep_delay"].agg(["size", "count", "sum"])
    return [
        Delay(str(carrier), int(hour), int(flights), int(departed), int(minutes))
        for (carrier, hour), flights, departed, minutes in sums.itertuples(name=None)
    ]
