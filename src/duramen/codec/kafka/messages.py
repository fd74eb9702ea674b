"""The messages of every API except Produce and Fetch, by API number: compiled from `tables`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from duramen.codec.kafka.schema import Schema
from duramen.codec.kafka.tables import admin, cluster, core, groups, shares, transactions
from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

_FAMILIES: Final = (core, groups, transactions, shares, admin, cluster)


def _schemas(kind: str, tables: Mapping[ApiKey, str]) -> Mapping[int, Schema]:
    return MappingProxyType(
        {key: Schema(f"{key.name} {kind}", APIS[key].flexible, table) for key, table in tables.items()}
    )


REQUESTS: Final = _schemas("request", {key: table for family in _FAMILIES for key, table in family.REQUESTS.items()})
RESPONSES: Final = _schemas("response", {key: table for family in _FAMILIES for key, table in family.RESPONSES.items()})
