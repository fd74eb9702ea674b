"""A Spark home without PySpark in it, so that Python workers import the installed one.

In Spark's own home PySpark is a zip of its sources that precedes all other paths. Each new worker process, also that of
every streaming query, would compile them again, which takes longer than the rest of its start. The installed package is
already compiled.
"""

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from duramen.base.errors import DependencyMissing
from duramen.spark.cache import cache_directory, made_once

__all__ = ["lean_home", "lean_home_set"]

_LINKED: Final = ("bin", "conf", "jars", "sbin")


def lean_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """A directory of links in the user's cache; None if workers could miss PySpark in it, or it cannot be created.

    They have PySpark if they run this interpreter, and PySpark is installed for it.
    """
    environment = os.environ if environment is None else environment
    if "SPARK_HOME" in environment or environment.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return None
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    pyspark, py4j = (_package(name) for name in ("pyspark", "py4j"))
    if pyspark is None or py4j is None or not {pyspark.parent, py4j.parent} <= installed:
        return None
    if not (pyspark / "jars").is_dir():
        return None
    digest = hashlib.sha256(f"{pyspark}\0{_LINKED}".encode()).hexdigest()[:16]
    try:
        return made_once(cache_directory(environment) / f"spark-{digest}", partial(_link, pyspark))
    except (OSError, DependencyMissing):
        return None


def _link(spark: Path, made: Path) -> None:
    for name in _LINKED:
        (made / name).symlink_to(spark / name)


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@contextmanager
def lean_home_set() -> Iterator[None]:
    """Java that starts in this block uses that home, if there is one."""
    home = lean_home()
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
