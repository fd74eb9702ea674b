"""The table of all node-to-node methods. Each room defines and handles its own."""

from collections.abc import Callable
from typing import Final

from duramen.broker.control.methods import METHODS as CONTROL
from duramen.broker.list_offsets import FIND_BOUNDS
from duramen.broker.views.keys import FIND_UNKEYED
from duramen.controller.admin.completeness import SURVEY_REPLICAS
from duramen.controller.membership.repairs import FETCH_RANGE
from duramen.coordinators.group.listing import LIST_GROUPS
from duramen.coordinators.inventory.cluster.requests import (
    CHANGE_INVENTORY,
    CHANGE_TOPICS,
    FOLLOW_INVENTORY,
    READ_CHANGES,
    READ_INVENTORY,
    WATCH_CHANGES,
)
from duramen.coordinators.lease.requests import ASK_LEASE, FIND_HELD, HOLD_SNAPSHOT
from duramen.coordinators.runtime.transfer import FETCH_ROWS
from duramen.coordinators.share.requests import CHANGE_STATES, DROP, LOCATE, READ_STATE, WRITE_STATE
from duramen.coordinators.transaction.cluster.requests import (
    FIND_COMMITS,
    HOLD_COMMITS,
    JOIN,
    RELEASE_COMMITS,
    WRITE_MARKERS,
)
from duramen.metadata.features import MetadataFeature
from duramen.metadata.state import ControllerState
from duramen.rpc.methods import MethodTable
from duramen.rpc.server import RpcServer
from duramen.rpc.wire import TableWire, Wires
from duramen.service.forwarded_requests import (
    APPEND,
    CHANGE_GROUP,
    CHANGE_QUEUES,
    DELETE_ALL_RECORDS,
    DELETE_RECORDS,
    FIND_LAGS,
    FIND_TOPIC_NAMES,
    KNOW_TOPIC,
    OPEN_EXPORT,
    READ,
    READ_EXPORT,
    READ_INVENTORY_EXPORT,
    READ_QUEUES,
    SHOW_GROUP,
    SNAPSHOT,
)
from duramen.service.old_wire import OldWire

__all__ = ["NOT_READY", "TABLE", "wires_by"]

TABLE: Final = MethodTable(
    [
        FIND_BOUNDS, SURVEY_REPLICAS, LIST_GROUPS, FETCH_RANGE,
        JOIN, WRITE_MARKERS, FIND_COMMITS, HOLD_COMMITS, RELEASE_COMMITS,
        APPEND, READ, DELETE_RECORDS, DELETE_ALL_RECORDS, SHOW_GROUP, CHANGE_GROUP,
        READ_STATE, WRITE_STATE, CHANGE_STATES, LOCATE, DROP,
        FETCH_ROWS,
        READ_QUEUES, CHANGE_QUEUES, KNOW_TOPIC, OPEN_EXPORT, READ_EXPORT, READ_INVENTORY_EXPORT,
        READ_INVENTORY, CHANGE_INVENTORY, CHANGE_TOPICS, FOLLOW_INVENTORY, READ_CHANGES, WATCH_CHANGES,
        FIND_TOPIC_NAMES, FIND_LAGS,
        FIND_UNKEYED,
        SNAPSHOT, ASK_LEASE, FIND_HELD, HOLD_SNAPSHOT,
        *CONTROL,
    ]
)  # fmt: skip


def wires_by(state: Callable[[], ControllerState]) -> Wires:
    """How a node speaks that knows this state of the metadata."""
    return Wires(TableWire(TABLE), OldWire(), lambda: state().feature_level >= MetadataFeature.METHOD_TABLE)


NOT_READY: Final = RpcServer(Wires(TableWire(TABLE), OldWire(), lambda: False))
"""Answers for a node whose handlers are not there yet."""
