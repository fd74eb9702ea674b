"""Kafka names of the inventory's topics, `tenant.namespace.topic`: they hide no other topic and none hides them."""

from duramen.base.catalogue_queues import TOPIC_PREFIX
from duramen.base.errors import ConfigInvalid, DuramenError, InventoryNameInvalid, NameInvalid
from duramen.broker.streams import BrokerStreams
from duramen.coordinators.inventory.inventory import Inventory
from duramen.metadata.decisions import Definition

__all__ = ["check_wish", "tenant_problem"]


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
    for stream in streams:
        prefix = stream.state.config.get(TOPIC_PREFIX, "")
        if prefix and (prefix.startswith(first) or first.startswith(prefix)):
            return InventoryNameInvalid(
                f"{tenant} cannot be the name of a tenant: topics of the queue space {stream.name} begin with {prefix}"
            )
    return None


def check_wish(inventory: Inventory, account: str, wish: Definition) -> None:
    """Raise NameInvalid where a stream has the name of a tenant's topic, ConfigInvalid where its queues would."""
    if inventory.may_name(account, wish.name):
        raise NameInvalid(
            f"the name {wish.name} is one of the inventory's topics, since {wish.name.split('.')[0]} is a tenant"
        )
    prefix = wish.config.get(TOPIC_PREFIX, "")
    if not prefix or not inventory.is_made:
        return
    for tenant in inventory.tenants(account, prefix.split(".")[0]):
        first = f"{tenant.name}."
        if prefix.startswith(first) or first.startswith(prefix):
            raise ConfigInvalid(f"{TOPIC_PREFIX}={prefix} would name topics of the tenant {tenant.name}")
        if not first.startswith(prefix.split(".")[0]):
            return
