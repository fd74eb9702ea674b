"""Writes the rows of Arrow batches as record batches to their partitions. Runs on executors."""

import random
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duramen.base.errors import OptionInvalid, StreamNotFound
from duramen.client import BrokerCluster, Producer, TopicPartition
from duramen.spark.batches.decoding import encode
from duramen.spark.write.partitioner import NO_KEY, partitions_of, split

__all__ = ["RowWriter"]

_WRITTEN: Final = ("key", "value", "headers")
_MOST_HELD_BYTES: Final = 64 * 1024 * 1024

_Places = NDArray[np.int32]


class RowWriter:
    """Collects rows for each partition, and passes them to a producer as batches."""

    def __init__(self, cluster: BrokerCluster, producer: Producer, topic: str, codec: int, batch_bytes: int) -> None:
        """Without a `topic`, the column of that name has it. `batch_bytes` is before compression."""
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._held: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._sizes: dict[TopicPartition, int] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows. Raises OptionInvalid for one without a topic, and the producer's errors."""
        for topic, part in self._by_topic(rows):
            columns = part.select([name for name in part.schema.names if name in _WRITTEN])
            for partition, some in split(columns, self._places(topic, part)):
                self._gather(TopicPartition(topic, partition), some)
        while sum(self._sizes.values()) > _MOST_HELD_BYTES:
            self._send(max(self._sizes, key=self._sizes.__getitem__))

    def flush(self) -> None:
        """Send everything, and wait for the acknowledgements. Raises the producer's errors."""
        for at in list(self._held):
            self._send(at)
        self._producer.flush()

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic:
            if rows.num_rows:
                yield self._topic, rows
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise OptionInvalid("a row has no topic; set the option topic, or fill the column")
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        for index, some in split(rows, encoded.indices.to_numpy()):
            yield names[index], some

    def _places(self, topic: str, rows: pa.RecordBatch) -> _Places:
        """The partition of each row: its own, else that of its key, else one for all keyless rows of this batch."""
        count = len(self._cluster.topic(topic).leaders)
        names = rows.schema.names
        if "key" in names:
            places = partitions_of(rows.column("key").cast(pa.binary()), count)
        else:
            places = np.full(rows.num_rows, NO_KEY, np.int32)
        places[places == NO_KEY] = random.randrange(count)
        if "partition" not in names:
            return places
        given = rows.column("partition")
        wanted = given.fill_null(NO_KEY).to_numpy(zero_copy_only=False)
        there = given.is_valid().to_numpy(zero_copy_only=False)
        if there.any() and (wanted[there].min() < 0 or wanted[there].max() >= count):
            wrong = wanted[there]
            raise StreamNotFound(f"stream {topic} has no partition {wrong[(wrong < 0) | (wrong >= count)][0]}")
        return np.where(there, wanted, places).astype(np.int32)

    def _gather(self, at: TopicPartition, rows: pa.RecordBatch) -> None:
        self._held.setdefault(at, []).append(rows)
        self._sizes[at] = self._sizes.get(at, 0) + rows.nbytes
        if self._sizes[at] >= self._batch_bytes:
            self._send(at)

    def _send(self, at: TopicPartition) -> None:
        held = self._held.pop(at)
        del self._sizes[at]
        now_ms = int(time.time() * 1000)
        for rows in pa.Table.from_batches(held).combine_chunks().to_batches():
            for batch, count in encode(rows, self._batch_bytes, self._codec, now_ms):
                self._producer.put(at, bytearray(batch), count)
