"""`decode.json` beside Spark's own `from_json`, with default options, over the same generated documents."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tests.spark.documents import NESTED, WITH_MAPS, documents
from tests.spark.jvm import jvm

from duramen.spark import decode

SHORT = 300
LONG = 5000


@pytest.fixture
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """The session's time zone."""
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def java_has_est_as_an_offset(spark: SparkSession) -> bool:
    """Whether it is -05:00, as up to Java 23. From 24 on it is America/Panama, which is another time before 1908."""
    return bool(jvm(spark).java.time.ZoneId.SHORT_IDS.get("EST") == "-05:00")


@pytest.mark.parametrize(
    ("schema", "zone", "count"),
    [
        (NESTED, "UTC", SHORT),
        (WITH_MAPS, "America/Los_Angeles", SHORT),
        pytest.param(NESTED, "America/Los_Angeles", LONG, marks=pytest.mark.long),
        pytest.param(WITH_MAPS, "UTC", LONG, marks=pytest.mark.long),
    ],
    indirect=["zone"],
)
@pytest.mark.usefixtures("zone")
def test_what_from_json_reads_is_read_to_the_same_value(spark: SparkSession, schema: str, count: int) -> None:
    values = documents(schema, count, seed=count)
    if not java_has_est_as_an_offset(spark):
        values = [value for value in values if b"EST" not in value]
    frame = spark.createDataFrame(list(enumerate(values)), "number INT, value BINARY").coalesce(1)
    text = sf.col("value").cast("string")
    spark_s = (
        frame.select(sf.from_json(text, f"{schema}, _corrupt_record STRING").alias("row")).select("row.*").toArrow()
    )
    ours = decode.json(frame, schema).drop("number", "value").toArrow()
    are_bad = [reason is not None for reason in spark_s.column("_corrupt_record").to_pylist()]
    reasons = ours.column("_error").to_pylist()
    pairs = [
        (spark_s.column(name).combine_chunks(), ours.column(name).combine_chunks()) for name in ours.column_names[:-1]
    ]
    differing: list[tuple[bytes, object, object]] = []
    for row, (value, is_bad, reason) in enumerate(zip(values, are_bad, reasons, strict=True)):
        if is_bad != (reason is not None):
            differing.append((value, is_bad, reason))
        elif not is_bad:
            differing += [
                (value, str(theirs), str(mine))
                for theirs, mine in ((one.slice(row, 1), other.slice(row, 1)) for one, other in pairs)
                if not theirs.equals(mine)
            ]
    assert differing == []
    assert 0 < sum(are_bad) < count // 2
