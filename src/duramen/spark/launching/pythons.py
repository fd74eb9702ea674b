"""The Python that Spark runs, and whether it has Duramen."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["default_python", "has_duramen", "python_of"]

_VARIABLES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_ASK: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark_duramen') is None)"
_ASK_S: Final = 30.0


def default_python(environment: Mapping[str, str] | None = None) -> str:
    """The Python that Spark's Java runs to find data sources; `spark.pyspark.python` has no effect on that."""
    environment = os.environ if environment is None else environment
    return next(filter(None, map(environment.get, _VARIABLES)), "python3")


def python_of(session: "SparkSession") -> str:
    """The same for the Java of a session, according to its environment at its start."""
    jvm: Any = session.sparkContext._jvm
    return default_python({name: jvm.java.lang.System.getenv(name) or "" for name in _VARIABLES})


def has_duramen(executable: str) -> bool:
    """Whether an interpreter, by its path or on the PATH, has `format("duramen")`; False if it does not run."""
    found = shutil.which(executable)
    try:
        return found is not None and subprocess.run(
            [found, "-c", _ASK], check=False, capture_output=True, timeout=_ASK_S
        ).returncode == 0  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
