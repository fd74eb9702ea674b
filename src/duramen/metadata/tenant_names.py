"""Reserved names of the inventory's tenants: no stream and no queue may have the name of one of their topics. Pure.

Kafka clients see a topic of the inventory as `tenant.namespace.topic`. A tenant is created once its name is reserved.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from duramen.base.catalogue.keyed import LIVE_TOPIC
from duramen.base.catalogue.queues import TOPIC_PREFIX
from duramen.base.errors import ConfigInvalid, DuramenError, InventoryNameInvalid, NameReserved, RequestInvalid
from duramen.metadata.events import TenantNameReserved
from duramen.metadata.features import MetadataFeature
from duramen.metadata.state import ControllerState

__all__ = ["check_tenants", "name_problem", "prefix_problem", "release_tenant", "reserve_tenant"]

_DOTS: Final = 2
"""In the Kafka name of a topic of the inventory, at least."""


def reserve_tenant(state: ControllerState, account: str, tenant: str) -> list[TenantNameReserved]:
    """Reserve the name of a tenant; each time under a new number, so that a late release has no effect.

    Raises InventoryNameInvalid if streams, live topics or topics of queues have names of its topics, and RequestInvalid
    if the cluster is not upgraded.
    """
    if state.feature_level < MetadataFeature.INVENTORY:
        raise RequestInvalid(
            "the inventory of topics needs all nodes of the cluster to be of this version, and the cluster to be"
            " upgraded (duramen cluster upgrade)"
        )
    shown = (
        (name, stream.name)
        for stream in state.streams.values()
        for name in (stream.name, stream.config.get(LIVE_TOPIC, ""))
    )
    for name, stream in shown:
        problem = name_problem(tenant, name, stream)
        if problem is not None:
            raise problem
    for prefix, space in state.topic_prefixes.items():
        problem = prefix_problem(tenant, prefix, space)
        if problem is not None:
            raise problem
    return [TenantNameReserved(account, tenant, state.next_reservation)]


def release_tenant(state: ControllerState, account: str, tenant: str, number: int) -> list[TenantNameReserved]:
    """Release the name of a deleted tenant, unless it was reserved again since."""
    known = state.tenant_names.get((account, tenant))
    return [TenantNameReserved(account, tenant, number, reserved=False)] if known == number else []


def name_problem(tenant: str, name: str, stream: str) -> DuramenError | None:
    """The reason why a tenant cannot have that name: its topics could have the name of a stream's topic."""
    if not name.startswith(f"{tenant}.") or name.count(".") < _DOTS:
        return None
    what = f"the stream {name}" if name == stream else f"the topic {name} of the stream {stream}"
    return InventoryNameInvalid(f"{tenant} cannot be the name of a tenant: {what} would be one of its topics")


def prefix_problem(tenant: str, prefix: str, space: str) -> DuramenError | None:
    """The reason why a tenant cannot have that name: topics of a queue space would have names of its topics."""
    if not prefix or not _meet(prefix, tenant):
        return None
    return InventoryNameInvalid(
        f"{tenant} cannot be the name of a tenant: topics of the queue space {space} begin with {prefix}"
    )


def _meet(prefix: str, tenant: str) -> bool:
    first = f"{tenant}."
    return prefix.startswith(first) or first.startswith(prefix)


def check_tenants(state: ControllerState, name: str, config: Mapping[str, str]) -> None:
    """Raise NameReserved or ConfigInvalid if a stream with that config would have names of a tenant's topics."""
    for what, shown in _names(name, config):
        tenant = shown.partition(".")[0]
        if shown.count(".") >= _DOTS and state.is_tenant(tenant):
            kind = NameReserved if shown == name else ConfigInvalid
            raise kind(f"{what} is the name of a topic of the inventory, since {tenant} is a tenant")
    prefix = config.get(TOPIC_PREFIX, "")
    for _, tenant in state.tenant_names if prefix else ():
        if _meet(prefix, tenant):
            raise ConfigInvalid(f"{TOPIC_PREFIX}={prefix} would name topics of the tenant {tenant}")


def _names(name: str, config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield name, name
    if config.get(LIVE_TOPIC):
        yield f"{LIVE_TOPIC}={config[LIVE_TOPIC]}", config[LIVE_TOPIC]
