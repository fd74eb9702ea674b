"""The settings of streams with a table, as data, and their consistency checks; `catalogue` includes them."""

from collections.abc import Mapping
from typing import Final

from duramen.base.settings import Setting, Value, nearest

__all__ = [
    "KEPT_OFFSETS",
    "NONE",
    "RETENTION_SETTINGS",
    "STORAGE_OPTIONS",
    "STREAM_SETTINGS",
    "TABLE_PREFIX",
    "storage_problem",
    "table_problem",
]

NONE: Final = "none"
TABLE_PREFIX: Final = "table."

_INT32_MAX = (1 << 31) - 1

# fmt: off
STREAM_SETTINGS: Final = (
    Setting("table.format", "choice", NONE,
            "The format of the stream's table, which `duramen table run` keeps beside the log: `delta`, `iceberg`, "
            "or `none`.",
            scope="stream", dynamic=True, choices=(NONE, "delta", "iceberg")),
    Setting("table.location", "text", "",
            "The location of the table: a directory, or `s3://BUCKET/PREFIX`. It must be empty, or the table of this "
            "stream.",
            scope="stream", dynamic=True),
    Setting("table.decode", "choice", NONE,
            "The format of values: fields of `json` and `avro` become columns beside those of the record; `none` "
            "decodes nothing.",
            scope="stream", dynamic=True, choices=(NONE, "json", "avro")),
    Setting("table.schema", "text", "",
            "With `table.decode=avro`: the Avro schema of the values as JSON, if they have no schema registry ids.",
            scope="stream", dynamic=True),
    Setting("table.registry.url", "text", "",
            "With `table.decode=avro`: the address of the schema registry of the values' ids, http://HOST:PORT.",
            scope="stream", dynamic=True),
    Setting("table.partition.by", "list", "",
            "The partition columns of the table.",
            scope="stream", dynamic=True, item=r"[A-Za-z_][A-Za-z0-9_.]*", example="names of columns"),
    Setting("table.max.lag.ms", "integer", 10_000,
            "The maximum lag of the table: records are in it within this time if the job keeps up.",
            scope="stream", dynamic=True, unit="ms", minimum=1000, maximum=_INT32_MAX),
    Setting("table.upsert.by", "choice", NONE,
            "`key`: the table has one row for each key, its newest record, and none after a tombstone; `none`: one "
            "row for each record. Delta only.",
            scope="stream", dynamic=True, choices=(NONE, "key")),
)

KEPT_OFFSETS: Final = "table.kept.offsets"
"""Of each partition `PARTITION:OFFSET`: before it the stream's table needs nothing of the log any more."""

RETENTION_SETTINGS: Final = (
    Setting("table.retention.multiple", "integer", 2,
            "Records that the table lacks are kept for up to this multiple of `retention.ms`, `retention.bytes` and "
            "`retention.records`, or of `queue.log.retention.ms` of a queue space; 1: retention does not wait for the "
            "table.",
            scope="stream", dynamic=True, minimum=1, maximum=1000),
    Setting(KEPT_OFFSETS, "list", "",
            "PARTITION:OFFSET for each partition: the table needs the log from this offset on. `duramen table "
            "enable` sets it to 0, and `duramen table run` updates it about once a minute for retention. If it is "
            "set, a missing table is an error.",
            scope="stream", dynamic=True, item=r"[0-9]{1,10}:[0-9]{1,19}", example="PARTITION:OFFSET"),
)
# fmt: on

STORAGE_OPTIONS: Final = ("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key", "s3.session-token",
                          "catalog.…")  # fmt: skip
"""How storage is reached, which no config of a stream says; `catalog.` has any property of a catalog behind it."""


def storage_problem(name: str) -> str | None:
    """The reason why a storage option is invalid; None if it is valid."""
    if name in STORAGE_OPTIONS or (name.startswith("catalog.") and name != "catalog."):
        return None
    hint = nearest(name, STORAGE_OPTIONS) or f"; there are {', '.join(STORAGE_OPTIONS)}"
    return f"there is no option {name} of a table's storage{hint}"


def table_problem(values: Mapping[str, Value]) -> str | None:
    """The reason why these configs (possibly incomplete) declare no valid table; None if they do, or declare none."""
    values = {setting.name: values.get(setting.name, setting.default) for setting in STREAM_SETTINGS}
    if values["table.format"] == NONE:
        return None
    if not values["table.location"]:
        return f"table.format is {values['table.format']}, so table.location must say where the table lies"
    if values["table.decode"] == "avro" and not (values["table.schema"] or values["table.registry.url"]):
        return "table.decode is avro, so table.schema or table.registry.url must say what the values' schema is"
    for name in ("table.schema", "table.registry.url"):
        if values[name] and values["table.decode"] != "avro":
            return f"{name} is given, which needs table.decode=avro, and that is {values['table.decode']}"
    if values["table.upsert.by"] != NONE and values["table.format"] != "delta":
        return (
            f"table.upsert.by is {values['table.upsert.by']}, which needs table.format=delta: what writes Iceberg"
            " without a JVM cannot replace rows and note what was read in one commit"
        )
    return None
