"""Features that all nodes of a cluster must support: each is active from a feature level on. Pure."""

from enum import IntEnum
from typing import Final

__all__ = ["LATEST_LEVEL", "LEAST_LEVEL", "MetadataFeature"]


class MetadataFeature(IntEnum):
    """A feature, by the level from which it is active."""

    CLUSTER = 1
    """The messages and records of a cluster (docs/adr/cluster-state.md)."""

    TWO_IN_SYNC = 2
    """`min.insync.replicas` is by default 2 for partitions with three replicas or more."""

    METHOD_TABLE = 3
    """Requests between nodes have the encoding of the table of methods (docs/adr/rpc.md)."""

    KEYED = 4
    """Streams may be keyed: replicas get S0 with the high watermark, and report theirs (docs/adr/keyed-floor.md)."""

    QUEUES = 5
    """Streams may be queue spaces, and nodes forward requests to their shards (docs/adr/light-queues.md)."""

    KEYED_TRANSACTIONS = 6
    """Keyed streams accept transactions: snapshots of every node are cut between them (docs/adr/keyed-vectors.md)."""

    INVENTORY = 7
    """The cluster may have an inventory: the metadata reserves names of tenants (docs/adr/inventory.md)."""

    SPACE_NUMBERS = 8
    """Queue spaces have numbers, and records in the log trim queues (docs/adr/queue-topics.md)."""

    TOPIC_DURABILITY = 9
    """Policies choose the durability of new topics, whose sequences tell it (docs/adr/inventory-records.md)."""

    SPACE_SECRETS = 10
    """A secret of each new queue space is the key of the hash of its queues' names (docs/adr/light-queues.md)."""


LEAST_LEVEL: Final[int] = MetadataFeature.CLUSTER
"""The lowest feature level of clusters that nodes of this version can join."""

LATEST_LEVEL: Final[int] = max(MetadataFeature)
"""The highest feature level of this version, with which a new cluster begins."""
