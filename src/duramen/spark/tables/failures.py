"""Errors of the table libraries as Duramen errors. Pure.

Classes are matched by name, so that no optional library is imported here.
"""

import errno
import re
from typing import Final

from duramen.base.errors import (
    BugFound,
    DependencyMissing,
    DuramenError,
    OptionInvalid,
    TableConflict,
    TableDamaged,
    TableStorageFailed,
    TableUnsupported,
)

__all__ = ["failure", "one_line"]

_MOST_LETTERS: Final = 300
_MARKS: Final = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
"""Terminal colours and arrows."""

_S3_CODE: Final = re.compile(r"<Code>(.*?)</Code>")
_RUST_CODE: Final = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+)")
"""Errors of Rust libraries have the number only in their text."""

_RUST_ERROR: Final = re.compile(r' Error: Os \{ code: \d+, kind: \w+, message: "([^"]*)" \}')
_BACKTRACE: Final = re.compile(r"\s0: \S.*", re.DOTALL)
_SQL_NOISE: Final = re.compile(r"\(sqlite3\.\w+\) |\(Background on this error at: \S+\)")
_REASONS: Final = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "the quota of the disk is exceeded",
    errno.EACCES: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a file is there, or on the way there, where a directory should be",
}

_KINDS: Final[dict[str, type[DuramenError]]] = {
    "builtins.ImportError": DependencyMissing,
    "pyiceberg.exceptions.NotInstalledError": DependencyMissing,
    "sqlalchemy.exc.ArgumentError": OptionInvalid,
    "_internal.CommitFailedError": TableConflict,
    "pyiceberg.exceptions.CommitFailedException": TableConflict,
    "pyiceberg.exceptions.ValidationException": TableConflict,
    "_internal.DeltaProtocolError": TableUnsupported,
    "_internal.SchemaMismatchError": TableUnsupported,
    "pyiceberg.exceptions.ValidationError": TableUnsupported,
    "pyiceberg.io.pyarrow.UnsupportedPyArrowTypeException": TableUnsupported,
    "pyarrow.lib.ArrowCapacityError": TableUnsupported,
    "pyarrow.lib.ArrowInvalid": TableUnsupported,
    "pyarrow.lib.ArrowNotImplementedError": TableUnsupported,
    "pyarrow.lib.ArrowTypeError": TableUnsupported,
    "builtins.OverflowError": TableUnsupported,
    "builtins.NotImplementedError": TableUnsupported,
    "msgspec.DecodeError": TableDamaged,
    "json.decoder.JSONDecodeError": TableDamaged,
    "pydantic_core._pydantic_core.ValidationError": TableDamaged,
    "builtins.OSError": TableStorageFailed,
    "sqlalchemy.exc.DBAPIError": TableStorageFailed,
    "sqlalchemy.exc.TimeoutError": TableStorageFailed,
    "pyiceberg.exceptions.RESTError": TableStorageFailed,
    "pyiceberg.exceptions.GlueError": TableStorageFailed,
    "pyiceberg.exceptions.DynamoDbError": TableStorageFailed,
    "pyiceberg.exceptions.WaitingForLockException": TableStorageFailed,
    "botocore.exceptions.BotoCoreError": TableStorageFailed,
    "botocore.exceptions.ClientError": TableStorageFailed,
    "urllib3.exceptions.HTTPError": TableStorageFailed,
}
"""By the qualified name of the error's class or of a base class."""

_SAID_IN_WORDS: Final = re.compile(r"builtins\.Exception|_internal\..*|pyiceberg\.exceptions\.ValidationError")
"""Classes that libraries raise for errors of many kinds; deltalake's are in the module `_internal`."""

_WORDS: Final = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        (r"\(os error \d+\)|\bOs \{ code: \d+|Generic (?:\w+|HTTP client) error|<Code>", TableStorageFailed),
        (r"unsupported|not (?:yet )?supported|cast error|cannot merge", TableUnsupported),
        (r"json error|invalid json|parquet error|\bEOF\b|corrupt|truncated|validation error for", TableDamaged),
    )
)
"""By their messages."""


def one_line(error: BaseException) -> str:
    """The message of a library's error, as one short line."""
    text = (
        " ".join(_SQL_NOISE.sub(" ", _MARKS.sub(" ", _BACKTRACE.sub("", str(error)))).split()) or type(error).__name__
    )
    coded = _RUST_CODE.search(text)
    number = int(coded[1] or coded[2]) if coded else getattr(error, "errno", None)
    if number in _REASONS:
        return _REASONS[number]
    text = _RUST_ERROR.sub(r": \1", text)
    refused = _S3_CODE.search(text)
    if refused is not None:
        text = f"S3 answers {refused.group(1)}"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def failure(location: str, error: BaseException, *, reading: bool = False) -> DuramenError:
    """Our error for an error of a library, with the location before its message.

    With `reading` the calls only read files of the table, so a file that they cannot decode is damaged.
    """
    kind = _kind(error)
    if reading and kind is TableUnsupported and not isinstance(error, NotImplementedError):
        kind = TableDamaged
    said = one_line(error)
    return kind(f"{location}: {type(error).__name__}: {said}" if kind is BugFound else f"{location}: {said}")


def _kind(error: BaseException) -> type[DuramenError]:
    names = [f"{one.__module__}.{one.__name__}" for one in type(error).__mro__]
    if _SAID_IN_WORDS.fullmatch(names[0]):
        for words, kind in _WORDS:
            if words.search(str(error)):
                return kind
    return next((_KINDS[name] for name in names if name in _KINDS), BugFound)
