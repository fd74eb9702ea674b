"""The examples do what they say, and say it exactly."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.pipelines.running import run_once

from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.demo.flights import find_dataset, read_flights

HOUR = "%Y-%m-%dT%H:%M:%SZ"
EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def produce(cluster: BrokerCluster, stream: str, values: Iterable[object], key: str | None = None) -> None:
    """Values as JSON; those with the same `key` go to the same partition."""
    with Producer(cluster) as producer:
        for value in values:
            named = None if key is None or not isinstance(value, dict) else str(value[key]).encode()
            producer.produce(stream, value if isinstance(value, bytes) else json.dumps(value).encode(), key=named)


def rows(table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return found


def at(minutes: int) -> str:
    return f"2026-11-22T{minutes // 60:02}:{minutes % 60:02}:00Z"


def test_flights_to_hourly_delays(spark: SparkSession, streams: BrokerCluster, directory: Path) -> None:
    """In two runs, so that the second one changes rows that the first one wrote."""
    StreamAdmin(streams).create_stream("flights", 4)
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    flights = read_flights(find_dataset().flights, 4_000)
    for part in (list(islice(flights, 2_500)), list(flights)):
        with Producer(streams) as producer:
            for flight in part:
                producer.produce("flights", flight.body)
        for flight in part:
            row = json.loads(flight.body)
            entry = expected[row["carrier"], row["time_hour"]]
            entry[0] += 1
            entry[1] += row["dep_delay"] is not None
            entry[2] += row["dep_delay"] or 0
        seen = run_once(spark, directory / "hourly_delays.yaml")
        found = rows(directory / "tables" / "hourly_delays")
        assert len(found) == len(expected)
        assert {
            (row["carrier"], row["hour"].strftime(HOUR)): [row["flights"], row["departed"], row["minutes"]]
            for row in found
        } == expected
        assert seen.last is not None
        assert (seen.last.state, seen.last.queries[0].state) == ("finished", "finished")
        batch = seen.last.queries[0].batch
        assert batch is not None
        assert batch.lag_records == 0


@pytest.mark.long
def test_late_flights_in_python(spark: SparkSession, streams: BrokerCluster, directory: Path) -> None:
    StreamAdmin(streams).create_stream("late-flights", 1)
    if "flights" not in streams.topics(["flights"]):
        StreamAdmin(streams).create_stream("flights", 1)
    before = written(streams, "late-flights")
    produce(streams, "flights", [{"carrier": "ZZ", "flight": 1, "dep_delay": 59}, {"carrier": "ZZ", "flight": 2,
            "dep_delay": 60}, {"carrier": "B6", "flight": 3, "dep_delay": 99_999}])  # fmt: skip
    run_once(spark, directory / "late_flights.py")
    found = [json.loads(value) for key, value in written(streams, "late-flights") if key in (b"ZZ", b"B6")]
    assert before == []
    assert {"carrier": "ZZ", "airline": "ZZ", "flight": 2, "dep_delay": 60} in found
    assert {"carrier": "B6", "airline": "JetBlue Airways", "flight": 3, "dep_delay": 99_999} in found
    assert all(row["dep_delay"] >= 60 for row in found)


def written(cluster: BrokerCluster, stream: str) -> list[tuple[bytes | None, bytes]]:
    """Keys and values of a stream of one partition."""
    from duramen.spark.batches.decoding import decode

    place = TopicPartition(stream, 0)
    consumer = Consumer(cluster)
    end = consumer.offsets({place: -1})[place]
    found = []
    for piece in consumer.read(place, 0, end):
        for batch in decode(piece.toreadonly(), 0, end, ("key", "value")):
            found += [(row["key"], row["value"]) for row in batch.to_pylist()]
    return found


@pytest.mark.long
def test_orders_with_payments(spark: SparkSession, streams: BrokerCluster, directory: Path) -> None:
    for stream in ("orders", "payments"):
        StreamAdmin(streams).create_stream(stream, 2)
    order = {"customer": "ada", "amount": 10}
    produce(streams, "orders", [{"id": number, "at": at(600 + number), **order} for number in range(1, 5)])
    # In time, too late, before its order, and for none.
    paid = [(1, 620), (2, 700), (3, 601), (9, 610)]
    produce(streams, "payments", [{"order_id": id_, "method": "card", "at": at(minute)} for id_, minute in paid])
    run_once(spark, directory / "orders_with_payments.yaml")
    # The other half of a pair comes in a later run.
    produce(streams, "payments", [{"order_id": 4, "method": "cash", "at": at(664)}])
    run_once(spark, directory / "orders_with_payments.yaml")
    found = rows(directory / "tables" / "paid_orders")
    assert sorted((row["id"], row["method"]) for row in found) == [(1, "card"), (4, "cash")]


@pytest.mark.long
def test_sessions(spark: SparkSession, streams: BrokerCluster, directory: Path) -> None:
    StreamAdmin(streams).create_stream("clicks", 1)
    StreamAdmin(streams).create_stream("visits", 1)
    clicks = [("ada", 600), ("bob", 605), ("ada", 610), ("ada", 700), ("eve", 900)]
    produce(streams, "clicks", [{"user": user, "page": "/", "at": at(minute)} for user, minute in clicks])
    run_once(spark, directory / "sessions.yaml")
    run_once(spark, directory / "sessions.yaml")
    visits = [(key, json.loads(value)) for key, value in written(streams, "visits")]
    found = sorted((key, one["began"][11:16], one["ended"][11:16], one["clicks"]) for key, one in visits)
    # Eve may click once more, for all that the stream says.
    assert found == [
        (b"ada", "10:00", "10:40", 2),
        (b"ada", "11:40", "12:10", 1),
        (b"bob", "10:05", "10:35", 1),
    ]


@pytest.mark.long
def test_change_data_to_a_table(spark: SparkSession, streams: BrokerCluster, directory: Path) -> None:
    StreamAdmin(streams).create_stream("customer-changes", 1)

    def row(id_: int, city: str) -> dict[str, object]:
        return {"id": id_, "name": "ada", "city": city}

    changes: list[object] = [
        {"op": "c", "before": None, "after": row(1, "Rome")},
        {"op": "c", "before": None, "after": row(2, "Oslo")},
        {"op": "u", "before": row(1, "Rome"), "after": row(1, "Bonn")},
        b"no JSON at all",
        {"op": "c", "before": None, "after": row(3, "Kyiv")},
        {"op": "d", "before": row(3, "Kyiv"), "after": None},
    ]
    later: list[object] = [
        {"op": "d", "before": row(2, "Oslo"), "after": None},
        {"op": "u", "before": row(1, "Bonn"), "after": row(1, "Lima")},
        {"op": "c", "before": None, "after": row(3, "Riga")},
    ]
    for part, expected in ((changes, [(1, "Bonn"), (2, "Oslo")]), (later, [(1, "Lima"), (3, "Riga")])):
        produce(streams, "customer-changes", part)
        run_once(spark, directory / "customers.yaml")
        found = sorted((one["id"], one["city"]) for one in rows(directory / "tables" / "customers"))
        assert found == expected
