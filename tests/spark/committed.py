"""What a reader of committed records sees of a stream."""

from collections import Counter

from duramen.client import BrokerCluster, Consumer, Isolation, TopicPartition
from duramen.spark.batches.decoding import decode

__all__ = ["committed", "values"]

PARTITIONS = 2


def committed(cluster: BrokerCluster, stream: str, partitions: int = PARTITIONS) -> Counter[bytes | None]:
    """The values that a reader of committed records sees; raises where it would have to wait for more."""
    consumer = Consumer(cluster, isolation=Isolation.READ_COMMITTED)
    ats = [TopicPartition(stream, index) for index in range(partitions)]
    found: Counter[bytes | None] = Counter()
    stable = consumer.bounds(ats)
    everything = Consumer(cluster).bounds(ats)
    assert stable == everything, "a transaction is open"
    for at, (first, end) in stable.items():
        for piece in consumer.read(at, first, end):
            for rows in decode(piece.toreadonly(), first, end, ["value"]):
                found.update(rows.column("value").to_pylist())
    return found


def values(count: int) -> Counter[bytes | None]:
    """Every number below `count`, once."""
    return Counter(b"%d" % number for number in range(count))
