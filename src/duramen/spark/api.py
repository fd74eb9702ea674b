"""Parts of PySpark's data source API that only some supported versions have, with stand-ins for the others.

4.0 lacks filters and an Arrow writer for streaming queries; 4.0 and 4.1 lack limits on what a micro-batch reads.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.pandas import types

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "HAS_FILTERS",
    "HAS_LIMITS",
    "DataSourceStreamArrowWriter",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "IsNotNull",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "to_arrow_schema",
]

HAS_FILTERS: Final = hasattr(datasource, "Filter")
"""Whether Spark passes the filters of a batch to its source: 4.1 and newer."""

HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark passes a stream the start and the limit of a micro-batch: 4.2 and newer."""

_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in (types.to_arrow_schema.__kwdefaults__ or {}) else {}
)


def to_arrow_schema(schema: "StructType") -> pa.Schema:
    """A Spark schema in Arrow, with timestamps in UTC."""
    return types.to_arrow_schema(schema, **_IN_UTC)


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 checks this class for streaming queries too."""


if TYPE_CHECKING or HAS_FILTERS:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
    )
else:

    class Filter:
        """A stand-in: this PySpark never passes filters."""

    EqualTo = GreaterThan = GreaterThanOrEqual = In = IsNotNull = LessThan = LessThanOrEqual = Filter


if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A stand-in: this PySpark never sets limits."""

    class SupportsTriggerAvailableNow:
        """A stand-in: this PySpark never asks for it."""

    ReadAllAvailable = ReadMaxRows = ReadMinRows = ReadLimit
