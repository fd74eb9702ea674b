"""What `format("duramen")` is in a PySpark that lacks what it needs: one clear error, whatever is asked of it.

Spark looks all formats up at once, so an error while this is imported would take the others with it.
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSource

from duramen.base.errors import DependencyMissing
from duramen.spark.launching.requirements import pyspark_problem
from duramen.spark.plainly import said_plainly

__all__ = ["OutdatedDataSource"]


class OutdatedDataSource(DataSource):
    """Refuses."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "duramen"

    @said_plainly()
    def schema(self) -> NoReturn:
        """Raises DependencyMissing."""
        raise DependencyMissing(str(pyspark_problem()))

    @said_plainly()
    def writer(self, schema: object, overwrite: bool) -> NoReturn:
        """Raises DependencyMissing."""
        del schema, overwrite
        raise DependencyMissing(str(pyspark_problem()))

    @said_plainly()
    def streamWriter(self, schema: object, overwrite: bool) -> NoReturn:
        """Raises DependencyMissing."""
        del schema, overwrite
        raise DependencyMissing(str(pyspark_problem()))
