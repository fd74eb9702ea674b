"""Writes for Python programs: calls become batches of one idempotent producer, and each gets its outcome.

Blocking; used by one thread at a time.
"""

from collections.abc import Sequence

from duramen.base.errors import ClientClosed, DuramenError, RequestInvalid, StreamNotFound
from duramen.client.api.arguments import refused, text
from duramen.client.api.offset_ranges import find_stream
from duramen.client.api.records import Encodable, Place
from duramen.client.cluster import BrokerCluster, TopicPartition
from duramen.client.interrupt import Interrupt
from duramen.client.pending_batches import SequenceRange
from duramen.client.places import partitions_of
from duramen.client.producer import Producer
from duramen.codec.compression import CODECS
from duramen.codec.sequences import SEQUENCES

__all__ = ["ProduceJob", "RecordWriter", "codec_of"]

_Slot = tuple["ProduceJob", int]


def codec_of(compression: object) -> int:
    """A compression codec's number. Raises RequestInvalid."""
    if not isinstance(compression, str):
        raise refused("compression", compression, f"one of {', '.join(CODECS)}")
    if compression not in CODECS:
        raise RequestInvalid(f"compression={compression!r} does not fit; it is one of {', '.join(CODECS)}")
    return CODECS.index(compression)


class ProduceJob:
    """Records of one call: afterwards `places` has their places, or `error` why some are not stored."""

    def __init__(self, stream: str, records: Sequence[Encodable]) -> None:
        self.stream = text("stream", stream)
        self.records = records
        self.places: list[Place | None] = [None] * len(records)
        self.error: DuramenError | None = None

    def result(self) -> list[Place]:
        """The places of its records. Raises the reason if some are not stored."""
        if self.error is not None:
            raise self.error
        return [place for place in self.places if place is not None]

    def fail(self, error: DuramenError, uncertain: int) -> None:
        """End it with `error`; this many of its records were sent and may be stored."""
        stored = len(self.places) - self.places.count(None)
        self.error = _explained(error, len(self.records), stored, uncertain)


def _explained(error: DuramenError, count: int, stored: int, uncertain: int) -> DuramenError:
    """The same error, with the outcome of the records and whether a repeat is safe."""
    if uncertain:
        what = f"{stored} of {count} records are stored, {uncertain} more may be: to repeat may store them twice"
    elif stored:
        what = f"{stored} of {count} records are stored, the others are not"
    else:
        what = "nothing was stored: to repeat is safe"
    return type(error)(f"{error}; {what}")


class RecordWriter:
    """Writes the records of calls. After an error it starts again with another producer id."""

    def __init__(self, kafka: str, *, timeout_s: float, codec: int) -> None:
        """`kafka` is the address of the Kafka door."""
        self.interrupt = Interrupt()
        """Set from any thread, it ends a `write` that is under way, and this writer."""
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._codec = codec
        self._cluster: BrokerCluster | None = None
        self._producer: Producer | None = None
        self._slots: dict[TopicPartition, list[_Slot]] = {}
        self._starts: dict[TopicPartition, int] = {}

    def write(self, jobs: Sequence[ProduceJob]) -> None:
        """Store the records of all jobs together. An error of one job does not affect the others."""
        left = self._attempt(jobs)
        if len(jobs) == 1:
            for job, error in left:
                job.fail(error, 0)
            return
        for job, _ in left:
            for one, error in self._attempt([job]):
                one.fail(error, 0)

    def _attempt(self, jobs: Sequence[ProduceJob]) -> list[tuple[ProduceJob, DuramenError]]:
        """Store the remaining records; returns the jobs with records that are certainly not stored, and the reason."""
        left: list[tuple[ProduceJob, DuramenError]] = []
        self._slots = {}
        self._starts = {}
        producer: Producer | None = None
        try:
            producer = self._ready()
            left += [(job, error) for job in jobs if (error := self._add(producer, job)) is not None]
            producer.flush()
        except DuramenError as error:
            self._after(error, producer, jobs, left)
        except BaseException:
            self.close()  # with answers under way that nobody will take
            raise
        return left

    def _after(
        self,
        error: DuramenError,
        producer: Producer | None,
        jobs: Sequence[ProduceJob],
        left: list[tuple[ProduceJob, DuramenError]],
    ) -> None:
        uncertain: dict[ProduceJob, int] = {}
        for stretch in () if producer is None else producer.uncertain():
            for job, _ in self._of(stretch):
                uncertain[job] = uncertain.get(job, 0) + 1
        self.close()
        known = {job for job, _ in left}
        for job in jobs:
            if job in uncertain:
                job.fail(error, uncertain[job])
            elif job not in known and None in job.places:
                left.append((job, error))

    def _ready(self) -> Producer:
        if self._cluster is None:
            self._cluster = BrokerCluster(
                self._kafka, client_id="duramen-python", timeout_s=self._timeout_s, interrupt=self.interrupt
            )
        if self._producer is None:
            self._producer = Producer(self._cluster, codec=self._codec, on_stored=self._stored)
        return self._producer

    def _add(self, producer: Producer, job: ProduceJob) -> DuramenError | None:
        """Add a job's records, all or none. Raises the producer's error."""
        try:
            self._check(job.stream, {record.partition for record in job.records if record.partition is not None})
        except StreamNotFound as error:
            return error
        for number, record in enumerate(job.records):
            if job.places[number] is None:
                index = record.partition
                if index is None:
                    index = producer.partition(job.stream, record.key)
                at = TopicPartition(job.stream, index)
                self._starts.setdefault(at, producer.next_sequence(at))
                self._slots.setdefault(at, []).append((job, number))
                producer.produce(
                    job.stream, record.value, key=record.key, partition=index, headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )  # fmt: skip
        return None

    def _check(self, stream: str, partitions: set[int]) -> None:
        if self._cluster is None:
            raise ClientClosed("the client was closed")
        topic = find_stream(self._cluster, stream)
        if not partitions <= topic.leaders.keys():
            self._cluster.forget([stream])
            topic = find_stream(self._cluster, stream)
        for partition in sorted(partitions):
            partitions_of(topic, partition)

    def _of(self, stretch: SequenceRange) -> list[_Slot]:
        start = (stretch.sequence - self._starts[stretch.at]) % SEQUENCES
        return self._slots[stretch.at][start : start + stretch.records]

    def _stored(self, stretch: SequenceRange, base_offset: int) -> None:
        for index, (job, number) in enumerate(self._of(stretch)):
            offset = base_offset + index if base_offset >= 0 else -1
            job.places[number] = Place(stretch.at.partition, offset)

    def close(self) -> None:
        """Close its connections; the next `write` opens new ones."""
        cluster, self._cluster, self._producer = self._cluster, None, None
        if cluster is not None:
            cluster.close()
