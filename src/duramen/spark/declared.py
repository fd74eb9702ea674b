"""Streams whose configs declare a table, and the declaration for the table formats. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from duramen.base.catalogue.keyed import KEYED
from duramen.base.catalogue.tables import KEPT_OFFSETS, NONE, STREAM_SETTINGS, TABLE_PREFIX
from duramen.base.settings import Value, check, entries
from duramen.spark.tables.port import Declaration, Storage

__all__ = ["KEYS", "DeclaredTable", "declared"]

KEYS: Final = (*(setting.name for setting in STREAM_SETTINGS), KEPT_OFFSETS, KEYED)
"""The configs that declare a table, whether it exists, and whether the stream is keyed."""


class DeclaredTable(NamedTuple):
    """A stream's table, its largest lag, and whether the stream is keyed."""

    declaration: Declaration
    max_lag_ms: int
    keyed: bool = False


def declared(
    stream: str, stream_id: str, config: Mapping[str, str | None], storage: Mapping[str, str] | None = None
) -> DeclaredTable | None:
    """The table that the stream's configs declare; None if they declare none. `storage` are options of the storage.

    Raises ConfigInvalid for an invalid value.
    """
    values: dict[str, Value] = {}
    for setting in STREAM_SETTINGS:
        text = config.get(setting.name)
        values[setting.name.removeprefix(TABLE_PREFIX)] = setting.default if text is None else check(setting, text)
    if values["format"] == NONE:
        return None
    declaration = Declaration(
        str(values["format"]),
        Storage(str(values["location"]), dict(storage or {})),
        stream,
        stream_id,
        str(values["decode"]),
        tuple(filter(None, entries(str(values["partition.by"])))),
        values["upsert.by"] != NONE,
        str(values["schema"]).encode(),
        str(values["registry.url"]),
        bool(config.get(KEPT_OFFSETS)),
    )
    return DeclaredTable(declaration, int(values["max.lag.ms"]), (config.get(KEYED) or "").strip().lower() == "true")
