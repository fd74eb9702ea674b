"""The table of methods: all that nodes ask each other. Each room defines its own, and handles them."""

from typing import Final

from duramen.broker.bounds import FIND_BOUNDS
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
from duramen.broker.operating.completeness import SURVEY_REPLICAS
from duramen.broker.sharing.requests import CHANGE_STATES, DROP, LOCATE, READ_STATE, WRITE_STATE
from duramen.rpc.methods import Table

__all__ = ["TABLE"]

TABLE: Final = Table(
    [
        FIND_BOUNDS, SURVEY_REPLICAS, LIST_GROUPS,
        JOIN, WRITE_MARKERS,
        APPEND, READ, DELETE_RECORDS, DELETE_ALL_RECORDS, SHOW_GROUP, CHANGE_GROUP,
        READ_STATE, WRITE_STATE, CHANGE_STATES, LOCATE, DROP,
    ]
)  # fmt: skip
