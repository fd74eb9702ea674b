"""The partition of `__transaction_state` that stores a transactional id or a query."""

from collections.abc import Sequence
from typing import Final

from duramen.base.errors import CoordinatorLoading
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.attempts import home_of
from duramen.groups.records import partition_for
from duramen.metadata.partitions import PartitionId

__all__ = ["TRANSACTIONS_STREAM", "TransactionLog", "transaction_partition"]

TRANSACTIONS_STREAM: Final = "__transaction_state"


def transaction_partition(id_: str, partitions: int) -> int:
    """The partition that stores an id, of that many partitions: all ids of a query have the same."""
    return partition_for(home_of(id_), partitions)


class TransactionLog:
    """The stream. The hash of an id's name selects its partition."""

    def __init__(self) -> None:
        self._stream: Stream | None = None

    def use(self, stream: Stream) -> None:
        """Use this stream as `__transaction_state`."""
        self._stream = stream

    @property
    def ready(self) -> bool:
        """Whether the stream exists."""
        return self._stream is not None

    @property
    def partitions(self) -> Sequence[Partition]:
        """The partitions of the stream; none if it does not exist."""
        return () if self._stream is None else self._stream.partitions

    def place_of(self, id_: str) -> PartitionId:
        """The partition that stores an id. Raises CoordinatorLoading."""
        stream = self._there()
        return PartitionId(stream.id, transaction_partition(id_, len(stream.partitions)))

    def partition_of(self, id_: str) -> int:
        """The number of the partition that stores an id. Raises CoordinatorLoading."""
        return self.place_of(id_).partition

    def place(self, index: int) -> PartitionId:
        """The partition with that number. Raises CoordinatorLoading."""
        return PartitionId(self._there().id, index)

    def _there(self) -> Stream:
        if self._stream is None:
            raise CoordinatorLoading(f"the stream {TRANSACTIONS_STREAM} does not exist yet")
        return self._stream
