"""Why Spark did not start, as one line out of what it and its Java wrote. Pure."""

import re
from typing import Final

__all__ = ["why"]

_JAVA: Final = re.compile(r"^(.+)\nError: Could not create the Java Virtual Machine", re.MULTILINE)
_REASON: Final = re.compile(r"Application has been killed\. Reason: (.+)$", re.MULTILINE)
_EXCEPTION: Final = re.compile(
    r'^(?:Exception in thread "[^"]*" |Caused by: |: )?[\w.$]+(?:Exception|Error): (.+)$', re.MULTILINE
)
_CLASS: Final = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] |\s*SQLSTATE: \w{5}.*")


def why(said: str) -> str:
    """The innermost reason: of Java itself or Spark's master, else the last exception that is named, else line 1."""
    own = _JAVA.search(said) or _REASON.search(said)
    exceptions = _EXCEPTION.findall(said)
    line = own[1] if own else exceptions[-1] if exceptions else next(iter(said.strip().splitlines()), "")
    return _CLASS.sub("", line.strip()).removesuffix(".") or "it does not say why"
