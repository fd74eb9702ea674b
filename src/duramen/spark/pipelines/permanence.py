"""Failures of a query that a restart cannot repair, by the names of Duramen's, Python's and Spark's errors. Pure."""

import re
from typing import Final

__all__ = ["is_permanent"]

_OURS: Final = frozenset({
    "BatchDiffers", "BatchTooLarge", "CheckpointInvalid", "DependencyMissing", "NameInvalid", "OptionInvalid",
    "PatternInvalid", "RecordsLost", "SettingInvalid", "StreamNotFound", "TableForeign", "TableUnsupported",
    "TimestampInvalid", "UnsupportedFeature",
})  # fmt: skip

_PYTHON: Final = frozenset({
    "ImportError", "IndentationError", "ModuleNotFoundError", "NameError", "NotImplementedError", "SyntaxError",
})  # fmt: skip

_PYSPARK: Final = frozenset({
    "AnalysisException", "IllegalArgumentException", "ParseException", "PySparkImportError",
    "PySparkNotImplementedError", "PySparkPicklingError", "PySparkTypeError", "PySparkValueError",
    "UnsupportedOperationException",
})  # fmt: skip

_EXCEPTION: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): ", re.MULTILINE)
_STATE: Final = re.compile(r"\bSQLSTATE: (\w{5})\b")
_STATES: Final = ("0A", "21", "22", "42", "56")
"""Not supported, cardinality, data, syntax or analysis, not supported by Connect: the same records fail again."""

_PATH_NOT_FOUND: Final = "42K03"
"""A directory may reappear."""


def is_permanent(error: str, said: str) -> bool:
    """Whether a restart of the query would fail in the same way.

    `error` is the class name of the error, empty if unknown; `said` is its whole message.
    """
    if error in _OURS or error in _PYTHON or error in _PYSPARK:
        return True
    if any(name in _PYTHON or name in _PYSPARK for name in _EXCEPTION.findall(said)):
        return True
    return any(state[:2] in _STATES and state != _PATH_NOT_FOUND for state in _STATE.findall(said))
