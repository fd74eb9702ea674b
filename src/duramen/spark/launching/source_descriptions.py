"""Streaming sources with a description and metrics in their query's progress. Sources in Python have neither."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from duramen.spark.launching.java_compiler import compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SourceDescriber"]

_CLASS: Final = "DescribedSources"


class SourceDescriber:
    """Describes the sources of a session's queries. A Spark that its Java does not know goes without."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session
        self._java: Any = None
        self._is_compiled = False

    def describe(self, relation: Any, description: str) -> None:
        """Describe the source of `relation`, a leaf of a query's plan, before Spark has planned the query."""
        from py4j.protocol import Py4JError

        if not self._is_compiled:
            self._java, self._is_compiled = compiled(self._session, _CLASS), True
        if self._java is not None:
            with suppress(Py4JError):
                self._java.describe(relation, description)
