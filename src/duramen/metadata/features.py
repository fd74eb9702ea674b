"""Features that need support of all nodes of a cluster: each is active from a feature level on. Pure."""

from enum import IntEnum
from typing import Final

__all__ = ["LATEST_LEVEL", "LEAST_LEVEL", "MetadataFeature"]


class MetadataFeature(IntEnum):
    """A feature, by the level from which it is in force."""

    CLUSTER = 1
    """What nodes say and write among themselves (docs/adr/cluster-state.md)."""

    TWO_IN_SYNC = 2
    """`min.insync.replicas`, where it is not set, is 2 for partitions with three replicas or more."""

    METHOD_TABLE = 3
    """Nodes ask each other in the encoding of the table of methods (docs/adr/rpc.md)."""

    KEYED = 4
    """Streams may be keyed: replicas hear S0 with the high watermark, and report it (docs/adr/keyed-views.md)."""

    QUEUES = 5
    """Streams may be queue spaces, and nodes ask each other about their shards (docs/adr/light-queues.md)."""

    KEYED_TRANSACTIONS = 6
    """Keyed streams take transactions: every node cuts snapshots between them (docs/adr/keyed-views.md)."""

    INVENTORY = 7
    """The cluster may have an inventory: names of tenants are reserved in the metadata (docs/adr/inventory.md)."""

    SPACE_NUMBERS = 8
    """Queue spaces have numbers, and operations of queues trim them (docs/adr/light-queues.md)."""

    TOPIC_DURABILITY = 9
    """Policies choose the durability of new topics, whose sequences tell it (docs/adr/inventory.md)."""


LEAST_LEVEL: Final[int] = MetadataFeature.CLUSTER
"""The lowest level of a cluster in which nodes of this version take part."""

LATEST_LEVEL: Final[int] = max(MetadataFeature)
"""The highest level that this version knows; a new cluster begins with it."""
