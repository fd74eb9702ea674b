"""A task's report about a data file that it wrote, as a row of Arrow or Spark. Pure."""

from typing import Final, NamedTuple

import pyarrow as pa

__all__ = ["SAID", "SAID_DDL", "WrittenFile"]


class WrittenFile(NamedTuple):
    """A complete file; `path` is relative to the table's location, `statistics` is JSON in Delta's notation."""

    path: str
    size_bytes: int
    statistics: str


SAID: Final = pa.schema([(name, pa.int64() if name == "size_bytes" else pa.string()) for name in WrittenFile._fields])
SAID_DDL: Final = "path STRING, size_bytes BIGINT, statistics STRING"
