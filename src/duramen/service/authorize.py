"""Operations, resources, and the gate that asks an authorizer whether a principal may perform an operation. Pure.

Operations and resource types have Kafka's names and numbers (`AclOperation`, `ResourceType`):
https://kafka.apache.org/documentation/#operations_in_kafka
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import (
    ClusterNotAuthorized,
    DuramenError,
    GroupNotAuthorized,
    TopicNotAuthorized,
    TransactionalIdNotAuthorized,
)
from duramen.base.principal import Principal

__all__ = ["CLUSTER_NAME", "REFUSALS", "Access", "Authorizer", "Gate", "Operation", "ResourceType"]

CLUSTER_NAME: Final = "kafka-cluster"
"""Kafka's name of the only resource of the type CLUSTER."""


class Operation(IntEnum):
    """An operation of a principal."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """The type of a resource."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Access(NamedTuple):
    """An operation on resources of a type."""

    operation: Operation
    resource_type: ResourceType


class Authorizer(Protocol):
    """Decides from memory; its rules are kept up to date elsewhere."""

    def allows(self, principal: Principal, access: Access, name: str | None) -> bool:
        """Whether the principal may do that to the resource; None: to any resource of the type."""


REFUSALS: Final[Mapping[ResourceType, type[DuramenError]]] = {
    ResourceType.TOPIC: TopicNotAuthorized,
    ResourceType.GROUP: GroupNotAuthorized,
    ResourceType.CLUSTER: ClusterNotAuthorized,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdNotAuthorized,
}
"""The error of a refusal, by the type of the resource."""


class Gate:
    """The only place that calls an authorizer and makes refusals."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        """Without an authorizer everybody may do everything."""
        self._authorizer = authorizer

    @property
    def open(self) -> bool:
        """Whether nothing is ever refused."""
        return self._authorizer is None

    def refusal(self, principal: Principal, access: Access, name: str | None) -> DuramenError | None:
        """The reason why the principal may not; None if it may."""
        authorizer = self._authorizer
        if authorizer is None or authorizer.allows(principal, access, name):
            return None
        what = access.resource_type.name.lower().replace("_", " ")
        if access.resource_type is not ResourceType.CLUSTER:
            what = f"any {what}" if name is None else f"{what} {name}"
        return REFUSALS[access.resource_type](f"{principal} is not authorized to {access.operation.name} on {what}")
