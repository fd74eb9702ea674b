"""Compiles Java classes in a session, with the compiler that Spark has for queries: subclasses without a jar.

Each class is a file `NAME.java` next to this module, without a package, with a constructor without arguments.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compiled", "source_of"]


def source_of(name: str) -> str:
    """The Java source of the class with that name."""
    return Path(__file__).with_name(f"{name}.java").read_text(encoding="utf-8")


def compiled(session: "SparkSession", name: str) -> Any:
    """A new object of that class in the session's Java, or None if the class does not fit its Spark."""
    from py4j.protocol import Py4JError

    jvm: Any = session.sparkContext._jvm
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source_of(name))
        return compiler.getClassLoader().loadClass(name).newInstance()
    except (Py4JError, TypeError):  # TypeError if there is no such compiler
        return None
