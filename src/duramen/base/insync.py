"""The required number of in-sync replicas: one rule for the controller and for replicas. Pure.

Pure.
"""

from typing import Final

__all__ = ["least_in_sync"]

_MANY_REPLICAS: Final = 3
_LEAST_OF_MANY: Final = 2


def least_in_sync(min_insync_replicas: int | None, replicas: int) -> int:
    """The number of replicas that must be in sync for a record to be committed.

    As in Kafka 4, `min.insync.replicas` never requires more replicas than exist. If it is not set (None), it is 2 with
    three replicas or more, so that one lost disk loses no acknowledged record, otherwise 1. Replicas that a
    reassignment adds do not count.
    """
    if min_insync_replicas is None:
        return _LEAST_OF_MANY if replicas >= _MANY_REPLICAS else 1
    return min(min_insync_replicas, replicas)
