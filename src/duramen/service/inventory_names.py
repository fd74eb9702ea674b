"""Kafka names of inventory topics, `tenant.namespace.topic`: they hide no other topic, and no topic hides them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from duramen.base.catalogue.keyed import LIVE_TOPIC
from duramen.base.catalogue.queues import TOPIC_PREFIX
from duramen.base.errors import (
    ConfigInvalid,
    DuramenError,
    InventoryNameInvalid,
    NameInvalid,
    NameReserved,
    StreamNotFound,
)
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.group.coordinator import Coordinator
from duramen.coordinators.group.topics import LASTING
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.shard import queue_space_of, queue_spaces
from duramen.coordinators.queue.shard import hash_of
from duramen.coordinators.runtime.runtime import Runtime
from duramen.inventory.ids import durability_of_bytes
from duramen.inventory.names import kafka_path
from duramen.metadata.decisions import Definition, check_name
from duramen.queues.machine import Empty, Own, QueueCommand
from duramen.queues.names import Queue
from duramen.queues.owners import OwnRetention, any_owners, have_owners

__all__ = [
    "auto_create", "check_config", "check_definition", "drop_records", "drop_topic", "have_records", "own_records",
    "submit_here", "tenant_problem",
]  # fmt: skip

Submit: TypeAlias = Callable[[Partition, QueueCommand, Callable[[object], None]], None]
"""Brings a command to the leader of a shard of queues."""


def tenant_problem(streams: BrokerStreams, tenant: str) -> DuramenError | None:
    """Why a tenant cannot be called that: a stream or a queue has a name that its topics would have."""
    first = f"{tenant}."
    for stream in streams.from_name(first):
        if not stream.name.startswith(first):
            break
        if stream.name.count(".") > 1:
            return InventoryNameInvalid(
                f"{tenant} cannot be the name of a tenant: the stream {stream.name} would be one of its topics"
            )
    for topic in streams.live_topics:
        if topic.name.startswith(first) and topic.name.count(".") > 1:
            return InventoryNameInvalid(
                f"{tenant} cannot be the name of a tenant: the live topic {topic.name} would be one of its topics"
            )
    for stream in streams:
        prefix = stream.state.config.get(TOPIC_PREFIX, "")
        if prefix and (prefix.startswith(first) or first.startswith(prefix)):
            return InventoryNameInvalid(
                f"{tenant} cannot be the name of a tenant: topics of the queue space {stream.name} begin with {prefix}"
            )
    return None


def check_definition(inventory: Inventory, account: str, definition: Definition) -> None:
    """Raise NameReserved if a stream has the name of a tenant's topic, ConfigInvalid if its queues would.

    CoordinatorLoading if that is not known yet.
    """
    if inventory.may_name(account, definition.name):
        tenant = definition.name.split(".")[0]
        inventory.tenant(account, tenant)  # raises where tenants are still being read
        raise NameReserved(f"{definition.name} is the name of a topic of the inventory, since {tenant} is a tenant")
    check_config(inventory, account, definition.config)


def check_config(inventory: Inventory, account: str, config: Mapping[str, str | None]) -> None:
    """Raise ConfigInvalid where the live topic or the queues that a config names would hide a tenant's topics."""
    live = config.get(LIVE_TOPIC) or ""
    if live and inventory.may_name(account, live):
        tenant = live.split(".")[0]
        inventory.tenant(account, tenant)  # raises where tenants are still being read
        raise ConfigInvalid(f"{LIVE_TOPIC}={live} is the name of a topic of the inventory, since {tenant} is a tenant")
    _check_prefix(inventory, account, config.get(TOPIC_PREFIX) or "")


def _check_prefix(inventory: Inventory, account: str, prefix: str) -> None:
    """Raise ConfigInvalid where topics of queues with that prefix would have the names of a tenant's topics."""
    if not prefix or not inventory.is_made:
        return
    for tenant in inventory.tenants(account, prefix.split(".", maxsplit=1)[0]):
        first = f"{tenant.name}."
        if prefix.startswith(first) or first.startswith(prefix):
            raise ConfigInvalid(f"{TOPIC_PREFIX}={prefix} would name topics of the tenant {tenant.name}")
        if not first.startswith(prefix.split(".", maxsplit=1)[0]):
            return


def drop_topic(
    streams: BrokerStreams, runtime: Runtime, groups: Coordinator, lasting_id: UUID, done: Callable[[object], None]
) -> None:
    """Delete the records of a deleted topic, and the offsets that groups have committed for it."""
    groups.expiration.forget_light_topic(LASTING + lasting_id.hex)
    drop_records(streams, partial(submit_here, runtime), lasting_id, done)


def submit_here(runtime: Runtime, partition: Partition, command: QueueCommand, done: Callable[[object], None]) -> None:
    """Bring a command to a shard of queues of a node that is alone."""
    runtime.submit(partition.stream.name, partition.index, command, done)


def drop_records(streams: BrokerStreams, submit: Submit, lasting_id: UUID, done: Callable[[object], None]) -> None:
    """Drop the records of a topic."""
    space = streams.find(queue_space_of(lasting_id))
    if space is None:
        done(None)
    else:
        queue, partition = _queue(space, lasting_id)
        submit(partition, Empty(queue, "drop"), done)


def own_records(
    streams: BrokerStreams, submit: Submit, lasting_id: UUID, namespace: int, own: OwnRetention | None,
    done: Callable[[object], None],
) -> None:  # fmt: skip
    """Tell the records of a topic its namespace, and what the topic says itself of its retention."""
    space = streams.find(queue_space_of(lasting_id))
    if space is None:
        done(None)
    else:
        queue, partition = _queue(space, lasting_id)
        submit(partition, Own(queue, namespace, own), done)


def have_records(streams: BrokerStreams, runtime: Runtime, lasting_ids: Sequence[bytes]) -> list[bool]:
    """Which topics may have records that know their namespace, on a node that is alone.

    Records that were accepted in this turn of the event loop do not count.
    """
    found, spaces, asked = [False] * len(lasting_ids), queue_spaces(streams), set[Partition]()
    for stream in spaces.values():
        asked.update(partition for partition in stream.partitions if _may_have_owners(runtime, partition))
    if not asked:
        return found
    by_partition = dict[Partition, list[tuple[int, bytes]]]()
    for at, lasting_id in enumerate(lasting_ids):
        space = spaces.get(durability_of_bytes(lasting_id))
        if space is not None:
            name = lasting_id.hex().encode()
            by_partition.setdefault(space.partition(partition_of(name, space.shards)), []).append((at, name))
    for partition in asked & by_partition.keys():
        places = by_partition[partition]
        if _is_applied(runtime, partition):
            hashed = map(hash_of(partition.stream), (name for _, name in places))
            owned = have_owners(runtime.rows(partition.stream.name, partition.index), [*hashed])
        else:
            owned = [True] * len(places)  # what is not applied yet may be their first records
        for (at, _), one in zip(places, owned, strict=True):
            found[at] = one
    return found


def _is_applied(runtime: Runtime, partition: Partition) -> bool:
    return runtime.applied_offset(partition.stream.name, partition.index) == partition.log.end_offset


def _may_have_owners(runtime: Runtime, partition: Partition) -> bool:
    if not _is_applied(runtime, partition):
        return True
    return any_owners(runtime.rows(partition.stream.name, partition.index))


def _queue(space: Stream, lasting_id: UUID) -> tuple[Queue, Partition]:
    name = lasting_id.hex.encode()
    return Queue(name, hash_of(space)(name)), space.partition(partition_of(name, space.shards))


def auto_create(
    inventory: Inventory, account: str, name: str, done: Callable[[DuramenError | None], None]
) -> None:  # fmt: skip
    """Create the topic with a Kafka name if the policy of its namespace allows it; an existing one succeeds too.

    `done` gets StreamNotFound if the policy does not allow it.
    """
    path = kafka_path(name)
    if path is None:
        done(StreamNotFound(f"there is no topic {name}"))
        return
    tenant, namespace, topic = path

    def found(answer: Any) -> None:
        if isinstance(answer, DuramenError):
            done(answer)
        elif answer is None:
            done(StreamNotFound(f"there is no topic {name}"))
        else:
            inventory.create_topics(answer, [topic], created)

    def created(answer: CreatedNames | DuramenError) -> None:
        if isinstance(answer, DuramenError):
            done(answer)
        else:
            done(answer.problems[0].error if answer.problems else None)

    def query() -> Any:
        creates = inventory.policies.creates_topics(account, tenant, namespace)
        return inventory.namespace(account, tenant, namespace) if creates else None

    try:
        check_name(name)
    except NameInvalid as error:
        done(error)
    else:
        inventory.read(query, found)
