"""Checks of arguments of the Python API: an invalid one is refused by its name."""

import math
import operator
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, SupportsIndex, TypeVar

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.client.http import HttpNode, server_address

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "checked_config",
    "checked_names",
    "flag",
    "refused",
    "seconds",
    "server_of",
    "several",
    "text",
    "whole",
]

T = TypeVar("T")

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

_SHOWN: Final = 40  # characters of a wrong value that an error repeats
_LONGEST_NAME_BYTES: Final = 4096


def refused(name: str, value: object, expected: str) -> RequestInvalid:
    """The error for an invalid argument."""
    try:
        shown = repr(value)
    except ValueError:  # a number of more digits than Python writes
        shown = "…"
    return RequestInvalid(f"{name} is {expected}, not {type(value).__name__} {' '.join(shown[:_SHOWN].splitlines())}")


def several(name: str, single: str, values: Iterable[T]) -> Iterable[T]:
    """The values of an argument that takes many; one value alone is refused, named as `single`."""
    if isinstance(values, str | bytes | msgspec.Struct):
        raise RequestInvalid(f"{name} are given in a list: write [{single}] for a single one")
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise refused(name, values, "a list")
    return values


def text(name: str, value: object) -> str:
    """A UTF-8 string of valid size for a name."""
    if not isinstance(value, str):
        raise refused(name, value, "str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise refused(name, value, "str without half a surrogate pair") from None
    if size > _LONGEST_NAME_BYTES:
        raise RequestInvalid(f"{name} has {size} bytes, which is more than {_LONGEST_NAME_BYTES}")
    return value


def server_of(value: object) -> HttpNode:
    """The node's address: HOST:PORT, or the value of the environment variable.

    Raises SettingInvalid for anything else.
    """
    return HttpNode(server_address(None if value is None else text("server", value)), keep=True)


def whole(name: str, value: object, low: int, high: int) -> int:
    """A whole number within bounds; numpy's integers are accepted."""
    expected = f"a whole number from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise refused(name, value, expected)
    number = operator.index(value)
    if not low <= number <= high:
        raise RequestInvalid(f"{name} is {expected}, not one of {number.bit_length()} bits" if abs(number) > INT64_MAX
                             else f"{name} is {expected}, not {number}")  # fmt: skip
    return number


def seconds(name: str, value: object, least: float = 0, most: float = threading.TIMEOUT_MAX) -> float:
    """A time within bounds; by default a time to wait, at most what Python supports."""
    expected = f"a number of seconds from {least:g} to {most:.0f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(name, value, expected)
    if not least <= value <= most:
        shown = value if isinstance(value, float) or abs(value) <= INT64_MAX else math.inf
        raise RequestInvalid(f"{name} is {expected}, not {shown}")
    return float(value)


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise refused(name, value, "True or False")
    return value


def checked_names(name: str, value: object) -> list[str]:
    """Names in a list; a single string is refused, because it would be read as characters."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise refused(name, value, "a list of str")
    return [text(f"{name}[{at}]", one) for at, one in enumerate(value)]


def checked_config(name: str, value: object, *, may_be_none: bool) -> dict[str, str | int | float | bool | None]:
    """Configs by their names; with `may_be_none` None resets a config to its default."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refused(name, value, "a mapping of configs")
    found: dict[str, str | int | float | bool | None] = {}
    for key, one in value.items():
        at = f"{name}[{text(f'a name in {name}', key)!r}]"
        if one is None and may_be_none:
            found[key] = None
        elif isinstance(one, str):
            found[key] = text(at, one)
        elif isinstance(one, bool) or (isinstance(one, float) and math.isfinite(one)):
            found[key] = one
        elif not isinstance(one, SupportsIndex):
            raise refused(at, one, "str, bool or a finite number")
        else:
            found[key] = whole(at, one, -1 - INT64_MAX, INT64_MAX)
    return found
