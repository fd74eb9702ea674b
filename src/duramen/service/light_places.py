"""Topic ids and partitions of many topics of the inventory, for Metadata: without an object for each. Pure."""

from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError, NameInvalid
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams
from duramen.codec.partitioner import partition_of
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.shard import queue_spaces
from duramen.inventory.ids import durability_of_bytes
from duramen.inventory.names import TopicPath
from duramen.metadata.decisions import check_name

__all__ = ["LightPlace", "inventory_topic_id", "is_kafka_name", "places_of"]


class LightPlace(NamedTuple):
    """A light topic by its Kafka name: the bytes of its topic id, and the partition of a stream that stores it."""

    name: str
    id: bytes
    partition: Partition


def inventory_topic_id(inventory_id: UUID, lasting_id: bytes, name: str) -> bytes:
    """The topic id of one name of a topic: clients treat two names with one id as corruption."""
    return blake2b(lasting_id + name.encode(), digest_size=16, key=inventory_id.bytes).digest()


def is_kafka_name(name: str) -> bool:
    """Whether Kafka accepts a name for a topic."""
    try:
        check_name(name)
    except NameInvalid:
        return False
    return True


def places_of(
    inventory: Inventory, account: str, streams: BrokerStreams, names: Collection[str]
) -> Iterator[LightPlace]:  # fmt: skip
    """The places of the existing topics among names; nothing while shards are loading."""
    paths = [TopicPath(*parts) for name in names if len(parts := name.split(".", 2)) == len(TopicPath._fields)]
    try:
        found = inventory.lookup_ids(account, paths)
    except DuramenError:
        return
    spaces = queue_spaces(streams)
    for path, lasting_id in zip(paths, found, strict=True):
        if lasting_id is None:
            continue
        name, space = ".".join(path), spaces.get(durability_of_bytes(lasting_id))
        if space is not None and is_kafka_name(name):
            partition = space.partition(partition_of(lasting_id.hex().encode(), space.shards))
            yield LightPlace(name, inventory_topic_id(inventory.id, lasting_id, name), partition)
