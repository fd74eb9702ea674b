"""Column pruning for batch reads: Spark requests all columns of Python sources, so unused ones are left out here."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from duramen.spark.launching.java_compiler import compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prune_columns"]

_CLASS: Final = "PruneColumns"


def prune_columns(session: "SparkSession") -> None:
    """Add the rule to the optimizer rules of the session, unless it is there."""
    from py4j.protocol import Py4JError

    java: Any = session._jsparkSession
    with suppress(Py4JError):
        experimental = java.experimental()
        rules = experimental.extraOptimizations()
        if any(rules.apply(at).getClass().getName() == _CLASS for at in range(rules.size())):
            return
        rule = compiled(session, _CLASS)
        if rule is not None:
            getattr(experimental, "extraOptimizations_$eq")(rules.appended(rule))
