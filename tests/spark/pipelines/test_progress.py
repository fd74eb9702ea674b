"""The figures of a micro-batch, from what Spark says of it."""

from duramen.client import TopicPartition
from duramen.spark.pipelines.progress import figures_of
from duramen.spark.read.offsets import SourceOffsets


def source(end: object, latest: object) -> dict[str, object]:
    return {"endOffset": end, "latestOffset": latest}


def offsets(at: list[int]) -> dict[str, object]:
    return SourceOffsets({TopicPartition("f", index): offset for index, offset in enumerate(at)}, {"f": "x"}).to_json()


def test_figures() -> None:
    figures = figures_of(
        {
            "batchId": 7, "numInputRows": 100, "processedRowsPerSecond": 6.8,
            "durationMs": {"triggerExecution": 50, "addBatch": 40},
            "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 10}, {"numRowsTotal": 4}],
            "sources": [source(offsets([5, 7]), offsets([9, 7, 3]))],
        }
    )  # fmt: skip
    assert (figures.batch_id, figures.rows, figures.rows_per_s, figures.batch_ms) == (7, 100, 6.8, 50)
    assert (figures.lag_records, figures.state_rows, figures.state_bytes) == (4 + 3, 7, 10)
    assert figures.phases_ms == {"addBatch": 40}


def test_what_is_not_known() -> None:
    figures = figures_of({"batchId": 0, "processedRowsPerSecond": "NaN", "sources": [source(None, None)]})
    assert (figures.rows, figures.rows_per_s, figures.lag_records) == (0, 0.0, None)
    assert figures_of({"sources": [source({"f": {"x": 1}}, {"f": {}})]}).lag_records is None


def test_of_rows_that_are_files_the_records_in_them_are_told() -> None:
    document = {
        "batchId": 0, "numInputRows": 4, "processedRowsPerSecond": 8.0, "durationMs": {"triggerExecution": 500},
        "observedMetrics": {"duramen": {"rows": 1000}},
    }  # fmt: skip
    figures = figures_of(document)
    assert (figures.rows, figures.rows_per_s) == (1000, 2000.0)
    figures = figures_of(document | {"observedMetrics": {"duramen": {"rows": None}}, "durationMs": {}})
    assert (figures.rows, figures.rows_per_s) == (0, 0.0)
