"""Checks whether a snapshot belongs to a log's history, by the leader epoch of the record before it."""

from duramen.base.errors import SnapshotCut
from duramen.broker.partition import Partition

__all__ = ["check_history", "epoch_before"]


def epoch_before(partition: Partition, position: int) -> int:
    """The leader epoch of the record before a position; -1 where that is not known."""
    log = partition.log
    return log.takeovers.epoch_at(position - 1) if position > log.start_offset else -1


def check_history(partition: Partition, position: int, epoch: int) -> None:
    """Raise SnapshotCut if the record before the position was written after the position's epoch; -1 fits any.

    Records in the place of a lost one have a newer epoch.
    """
    if position > partition.log.end_offset or 0 <= epoch < epoch_before(partition, position):
        raise SnapshotCut(
            f"partition {partition.index} of {partition.stream.name} has lost records before {position}, which the"
            " snapshot has: read a whole snapshot"
        )
