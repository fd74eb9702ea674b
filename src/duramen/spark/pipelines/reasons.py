"""The reason of a Spark failure as one line: without Java, without tracebacks, with the line of SQL if there is one.

Pure.
"""

import re
from typing import Final, NamedTuple

from duramen.spark.pipelines.definition.model import Text
from duramen.spark.pipelines.definition.problems import SourcePlace

__all__ = ["FailureReason", "placed", "plain", "reason"]

_OURS: Final = re.compile(r"(?:duramen|pyspark)[\w.]*errors[\w.]*\.(\w+): (.*?)(?:\n|\Z)")
_CLASS: Final = re.compile(r"^\s*\[([A-Z][A-Z0-9_.]+)\] ")
_INNER: Final = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE|\n|\Z)", re.DOTALL)
_PYTHON: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}.*", re.DOTALL)
_FULL: Final = "java.io.IOException: No space left on device"
_PLACE: Final = re.compile(r"\bline (\d+),? pos (\d+)")


class FailureReason(NamedTuple):
    """The class name of one of our errors in `duramen.base.errors`, or nothing, and the message."""

    error: str
    message: str


def plain(message: str) -> str:
    """The first sentence or so of a Spark message, without its class and state."""
    said = _STATE.sub("", _CLASS.sub("", message.strip()))
    return " ".join(said.partition("\n")[0].split())


def placed(said: str, text: Text) -> SourcePlace:
    """The place in the file of the error in the SQL of `text`, as far as Spark reports it."""
    found = _PLACE.search(said)
    return text.place if found is None else text.at(int(found[1]), int(found[2]))


def reason(said: str, checkpoint: str) -> FailureReason:
    """The reason for the end of a query with that checkpoint: our error's message, or Python's or Spark's."""
    ours = list(_OURS.finditer(said))
    if ours:
        return FailureReason(ours[-1][1], " ".join(ours[-1][2].split()))
    inner = _INNER.search(said)
    python = list(_PYTHON.finditer(said))
    if python and "Traceback (most recent call last)" in said:
        return FailureReason("", f"{python[-1][1]}: {' '.join(python[-1][2].split())}")
    spark = plain(inner[1] if inner else said)
    if spark == _FULL:  # Java does not say where
        spark = f"no space left on the device, of the checkpoint {checkpoint} or of Spark's own files (spark.local.dir)"
    return FailureReason("", spark)
