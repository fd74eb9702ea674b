"""`format("duramen")` in a PySpark that is too old for it: every use fails with one clear error.

Spark loads all formats at once, so an error during this import would break the others too.
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSource

from duramen.base.errors import DependencyMissing
from duramen.spark.launching.requirements import pyspark_problem
from duramen.spark.plainly import without_traceback

__all__ = ["OutdatedDataSource"]


class OutdatedDataSource(DataSource):
    """Refuses every use."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "duramen"

    @without_traceback()
    def schema(self) -> NoReturn:
        """Raises DependencyMissing."""
        raise DependencyMissing(str(pyspark_problem()))

    @without_traceback()
    def writer(self, schema: object, overwrite: bool) -> NoReturn:
        """Raises DependencyMissing."""
        del schema, overwrite
        raise DependencyMissing(str(pyspark_problem()))

    @without_traceback()
    def streamWriter(self, schema: object, overwrite: bool) -> NoReturn:
        """Raises DependencyMissing."""
        del schema, overwrite
        raise DependencyMissing(str(pyspark_problem()))
