"""The table of methods: all that nodes ask each other, and how. Each room defines its own, and handles them."""

from collections.abc import Callable
from typing import Final

from duramen.broker.bounds import FIND_BOUNDS
from duramen.broker.cluster.repairs import FETCH_RANGE
from duramen.broker.control.methods import METHODS as CONTROL
from duramen.broker.coordinating.requests import JOIN, WRITE_MARKERS
from duramen.broker.forwarding.requests import (
    APPEND,
    CHANGE_GROUP,
    DELETE_ALL_RECORDS,
    DELETE_RECORDS,
    READ,
    SHOW_GROUP,
)
from duramen.broker.groups.listing import LIST_GROUPS
from duramen.broker.old_wire import OldWire
from duramen.broker.operating.completeness import SURVEY_REPLICAS
from duramen.broker.sharing.requests import CHANGE_STATES, DROP, LOCATE, READ_STATE, WRITE_STATE
from duramen.controller.cluster.features import Feature
from duramen.controller.state import ControllerState
from duramen.rpc.methods import Table
from duramen.rpc.server import Server
from duramen.rpc.wire import TableWire, Wires

__all__ = ["NOT_READY", "TABLE", "wires_by"]

TABLE: Final = Table(
    [
        FIND_BOUNDS, SURVEY_REPLICAS, LIST_GROUPS, FETCH_RANGE,
        JOIN, WRITE_MARKERS,
        APPEND, READ, DELETE_RECORDS, DELETE_ALL_RECORDS, SHOW_GROUP, CHANGE_GROUP,
        READ_STATE, WRITE_STATE, CHANGE_STATES, LOCATE, DROP,
        *CONTROL,
    ]
)  # fmt: skip


def wires_by(state: Callable[[], ControllerState]) -> Wires:
    """How a node speaks that knows this state of the metadata."""
    return Wires(TableWire(TABLE), OldWire(), lambda: state().feature_level >= Feature.METHOD_TABLE)


NOT_READY: Final = Server(Wires(TableWire(TABLE), OldWire(), lambda: False))
"""Answers for a node whose handlers are not there yet."""
