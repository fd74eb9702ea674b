"""Bounds the size of a response: a request that names things repeatedly does not get all repetitions. Pure."""

from collections.abc import Collection, Mapping
from typing import Final

from duramen.base.errors import RequestInvalid

__all__ = ["ResponseBudget"]

_VALUE_BYTES: Final = 64  # about the memory of a value, with its share of its container


class ResponseBudget:
    """The estimated memory of a response while it is built; its parts are counted as they are added."""

    __slots__ = ("_left_bytes", "_limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes

    def check(self) -> None:
        """Raise RequestInvalid if the response is at its limit."""
        if self._left_bytes < 0:
            raise RequestInvalid(
                f"the response would have more than {self._limit_bytes} bytes: request less at once, each item once"
            )

    def take(self, part: object) -> None:
        """Count a part of the response. Raises RequestInvalid if it does not fit, and for every later part."""
        self._left_bytes -= _weight(part)
        self.check()


def _weight(part: object) -> int:
    if isinstance(part, str | bytes | memoryview):
        return _VALUE_BYTES + len(part)
    if isinstance(part, Mapping):
        return _VALUE_BYTES + sum(map(_weight, part.values()))
    if isinstance(part, Collection):
        return _VALUE_BYTES + sum(map(_weight, part))
    return _VALUE_BYTES
