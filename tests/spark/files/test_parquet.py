"""`duramen.spark.write_parquet` and `stream_parquet` on a real node, read again by Spark's own reader."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

import duramen.spark
from duramen.base.errors import OptionInvalid, TableForeign, TableUnsupported
from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess

COUNT = 1000


def produce(cluster: BrokerCluster, stream: str, count: int = COUNT, first: int = 0) -> None:
    with Producer(cluster) as producer:
        for number in range(first, first + count):
            key = None if number % 7 == 0 else b"key-%d" % number
            headers = [(b"name", b"%d" % number)] * (number % 3)
            producer.produce(stream, b"%d" % number, key=key, partition=number % 4, headers=headers)


@pytest.fixture
def reader(spark: SparkSession, node: NodeProcess, stream: str) -> DataFrameReader:
    options = {"kafka.bootstrap.servers": node.kafka, "subscribe": stream}
    return spark.read.format("duramen").options(**options)


@pytest.fixture
def stream_reader(spark: SparkSession, node: NodeProcess, stream: str) -> Callable[..., DataStreamReader]:
    def make(**options: str) -> DataStreamReader:
        given = {"kafka.bootstrap.servers": node.kafka, "subscribe": stream, "startingOffsets": "earliest", **options}
        return spark.readStream.format("duramen").options(**given)

    return make


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


class TestBatch:
    @pytest.mark.long
    def test_has_what_the_reader_gives(
        self, spark: SparkSession, cluster: BrokerCluster, stream: str, reader: DataFrameReader, tmp_path: Path
    ) -> None:
        produce(cluster, stream)
        reader.option("includeHeaders", "true")
        duramen.spark.write_parquet(reader, str(tmp_path / "there"))
        found, wanted = spark.read.parquet(str(tmp_path / "there")), reader.load()
        assert found.schema == wanted.schema
        assert found.exceptAll(wanted).count() == wanted.exceptAll(found).count() == 0
        assert found.count() == COUNT
        names = sorted(path.name for path in (tmp_path / "there").iterdir())
        assert names[0] == "_SUCCESS"
        assert all(re.fullmatch(r"part-[0-9a-f-]+\.zstd\.parquet", name) for name in names[1:])
        assert len(names) == 1 + 4

    @pytest.mark.long
    def test_has_times_that_python_has_no_room_for(
        self,
        spark: SparkSession,
        cluster: BrokerCluster,
        stream: str,
        reader: DataFrameReader,
        stream_reader: Callable[..., DataStreamReader],
        tmp_path: Path,
    ) -> None:
        moments_ms = [-62135596800001, 0, 253402300800000]
        StreamAdmin(cluster).set_stream_configs(stream, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
        with Producer(cluster) as producer:
            for moment_ms in moments_ms:
                producer.produce(stream, b"1", partition=0, timestamp_ms=moment_ms)
        duramen.spark.write_parquet(reader, str(tmp_path / "batch"))
        writer = duramen.spark.stream_parquet(stream_reader(), str(tmp_path / "stream"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
        for name in ("batch", "stream"):
            found = spark.read.parquet(str(tmp_path / name)).selectExpr("unix_millis(timestamp) AS ms").orderBy("ms")
            assert [row.ms for row in found.collect()] == moments_ms

    def test_has_the_columns_that_are_asked_for(
        self, spark: SparkSession, cluster: BrokerCluster, stream: str, reader: DataFrameReader, tmp_path: Path
    ) -> None:
        produce(cluster, stream, 20)
        duramen.spark.write_parquet(reader.option("columns", "offset,value"), f"file://{tmp_path}/two%20words")
        assert spark.read.parquet(str(tmp_path / "two words")).columns == ["offset", "value"]

    @pytest.mark.long
    def test_of_nothing_says_which_columns_there_would_be(
        self, spark: SparkSession, reader: DataFrameReader, tmp_path: Path
    ) -> None:
        duramen.spark.write_parquet(reader, str(tmp_path / "there"))
        found = spark.read.parquet(str(tmp_path / "there"))
        assert (found.count(), found.schema) == (0, reader.load().schema)

    @pytest.mark.long
    def test_modes(
        self, spark: SparkSession, cluster: BrokerCluster, stream: str, reader: DataFrameReader, tmp_path: Path
    ) -> None:
        place = str(tmp_path / "there")
        produce(cluster, stream, 10)
        duramen.spark.write_parquet(reader, place)
        for mode in ("errorifexists", "error"):
            with pytest.raises(TableForeign, match="is there already; say mode append or overwrite"):
                duramen.spark.write_parquet(reader, place, mode)
        duramen.spark.write_parquet(reader, place, "ignore")
        assert spark.read.parquet(place).count() == 10
        duramen.spark.write_parquet(reader, place, "APPEND")
        assert spark.read.parquet(place).count() == 20
        duramen.spark.write_parquet(reader, place, "overwrite")
        assert values(spark.read.parquet(place)) == list(range(10))
        with pytest.raises(OptionInvalid, match="mode: 'upsert' does not fit; it must be one of errorifexists, "):
            duramen.spark.write_parquet(reader, place, "upsert")

    @pytest.mark.parametrize(
        ("location", "error", "said"),
        [
            ("s3://bucket/prefix", TableUnsupported, "'s3://bucket/prefix' is no path"),
            ("", TableUnsupported, "'' is no path"),
            ("file://host/there", TableUnsupported, "is no path"),
        ],
    )
    def test_a_place_that_is_none_is_refused(
        self, reader: DataFrameReader, location: str, error: type[Exception], said: str
    ) -> None:
        with pytest.raises(error, match=said):
            duramen.spark.write_parquet(reader, location)

    def test_no_table_is_written_into(self, reader: DataFrameReader, tmp_path: Path) -> None:
        (tmp_path / "table" / "_delta_log").mkdir(parents=True)
        (tmp_path / "table" / "_delta_log" / "0.json").touch()
        for place in ("table", "table/within"):
            with pytest.raises(TableForeign, match="choose another directory"):
                duramen.spark.write_parquet(reader, str(tmp_path / place), "append")

    def test_another_format_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "some.txt").write_text("text")
        reader = spark.read.format("text").option("path", str(tmp_path / "some.txt"))
        with pytest.raises(OptionInvalid, match="must be of the format duramen"):
            duramen.spark.write_parquet(reader, str(tmp_path / "there"))

    def test_what_fails_leaves_what_was_there(
        self, cluster: BrokerCluster, stream: str, reader: DataFrameReader, tmp_path: Path
    ) -> None:
        place = tmp_path / "there"
        produce(cluster, stream, 10)
        duramen.spark.write_parquet(reader, str(place))
        before = sorted(place.iterdir())
        reader.option("endingOffsets", f'{{"{stream}": {{"0": 99, "1": 1, "2": 1, "3": 1}}}}')
        with pytest.raises(Exception, match="has the offsets 0 to 2, and should be read to 98"):
            duramen.spark.write_parquet(reader, str(place), "overwrite")
        assert sorted(place.iterdir()) == before


class TestStream:
    def run(self, reader: DataStreamReader, place: Path, checkpoint: Path) -> StreamingQuery:
        writer = duramen.spark.stream_parquet(reader, str(place)).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    @pytest.mark.long
    def test_has_each_record_once_over_many_micro_batches_and_runs(
        self, spark: SparkSession, cluster: BrokerCluster, stream: str, stream_reader: Callable[..., DataStreamReader],
        tmp_path: Path,
    ) -> None:  # fmt: skip
        place, checkpoint = tmp_path / "there", tmp_path / "checkpoint"
        for turn in range(2):
            produce(cluster, stream, 120, turn * 120)
            self.run(stream_reader(maxOffsetsPerTrigger="10"), place, checkpoint)
            assert values(spark.read.parquet(str(place))) == list(range(120 * (turn + 1)))
        log = {path.name for path in (place / "_spark_metadata").iterdir()}
        assert log == {"9.compact", "19.compact", "20", "21", "22", "23", "duramen.json"} | {
            str(number) for number in range(10, 19)
        }
        assert not (place / "_temporary").exists()
        # Spark's own streaming reader goes by the same log.
        again = spark.readStream.schema(stream_reader().load().schema).parquet(str(place))
        query = again.writeStream.format("memory").queryName("again").trigger(availableNow=True).start()
        query.awaitTermination()
        assert values(spark.table("again")) == list(range(240))

    def test_a_micro_batch_that_comes_again_is_there_once(
        self, spark: SparkSession, cluster: BrokerCluster, stream: str, stream_reader: Callable[..., DataStreamReader],
        tmp_path: Path,
    ) -> None:  # fmt: skip
        place, checkpoint = tmp_path / "there", tmp_path / "checkpoint"
        produce(cluster, stream, 20)
        self.run(stream_reader(maxOffsetsPerTrigger="10"), place, checkpoint)
        # As if the driver had been killed behind the commit of the last one, and before that of the one before it.
        (checkpoint / "commits" / "1").unlink()
        self.run(stream_reader(maxOffsetsPerTrigger="10"), place, checkpoint)
        assert values(spark.read.parquet(str(place))) == list(range(20))
        (checkpoint / "commits" / "1").unlink()
        (place / "_spark_metadata" / "1").unlink()
        self.run(stream_reader(maxOffsetsPerTrigger="10"), place, checkpoint)
        assert values(spark.read.parquet(str(place))) == list(range(20))

    @pytest.mark.long
    def test_small_micro_batches_are_files_too(
        self, cluster: BrokerCluster, stream: str, stream_reader: Callable[..., DataStreamReader], tmp_path: Path
    ) -> None:
        produce(cluster, stream, 1)
        self.run(stream_reader(columns="value"), tmp_path / "there", tmp_path / "checkpoint")
        (file,) = (tmp_path / "there").glob("*.parquet")
        assert pq.ParquetFile(str(file)).metadata.num_rows == 1

    @pytest.mark.parametrize(
        ("forget", "said"),
        [
            ("checkpoint", "was begun with another checkpoint"),
            ("commits", "is newer than the checkpoint: that is at micro-batch 1, and the directory has those up to 3"),
            ("there", "is older than the checkpoint: that is at micro-batch 4, and the directory has none"),
        ],
    )
    @pytest.mark.long
    def test_a_checkpoint_and_a_directory_that_do_not_belong_together_end_the_query(
        self, cluster: BrokerCluster, stream: str, stream_reader: Callable[..., DataStreamReader], tmp_path: Path,
        forget: str, said: str,
    ) -> None:  # fmt: skip
        place, checkpoint = tmp_path / "there", tmp_path / "checkpoint"
        produce(cluster, stream, 40)
        self.run(stream_reader(maxOffsetsPerTrigger="10"), place, checkpoint)
        if forget == "commits":
            for number in (1, 2, 3):
                for kind in ("commits", "offsets"):
                    (checkpoint / kind / str(number)).unlink()
        else:
            (tmp_path / forget).rename(tmp_path / "elsewhere")
        produce(cluster, stream, 40, 40)
        with pytest.raises(StreamingQueryException, match=said):
            self.run(stream_reader(maxOffsetsPerTrigger="10"), place, checkpoint)

    @pytest.mark.long
    def test_a_batch_is_not_put_where_readers_would_not_see_it(
        self, cluster: BrokerCluster, stream: str, reader: DataFrameReader,
        stream_reader: Callable[..., DataStreamReader], tmp_path: Path,
    ) -> None:  # fmt: skip
        produce(cluster, stream, 10)
        self.run(stream_reader(), tmp_path / "there", tmp_path / "checkpoint")
        with pytest.raises(TableForeign, match="is written by a streaming query"):
            duramen.spark.write_parquet(reader, str(tmp_path / "there"), "append")

    @pytest.mark.long
    def test_a_directory_of_sparks_own_sink_is_left_alone(
        self, spark: SparkSession, cluster: BrokerCluster, stream: str, stream_reader: Callable[..., DataStreamReader],
        tmp_path: Path,
    ) -> None:  # fmt: skip
        produce(cluster, stream, 10)
        writer = stream_reader().load().writeStream.format("parquet").trigger(availableNow=True)
        places: Mapping[str, Any] = {"checkpointLocation": str(tmp_path / "own"), "path": str(tmp_path / "there")}
        writer.options(**places).start().awaitTermination()
        with pytest.raises(StreamingQueryException, match="was written by Spark's own file sink"):
            self.run(stream_reader(), tmp_path / "there", tmp_path / "checkpoint")
        assert values(spark.read.parquet(str(tmp_path / "there"))) == list(range(10))
