"""Faults that a test requests: the responses to delay, and the requests to refuse. Pure.

Only a node started for tests has such a table (`duramen.testing`).
"""

from typing import NamedTuple

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey

__all__ = ["Fault", "RequestFaults"]


class Fault(NamedTuple):
    """The fault of one request: the delay of its response; with a code, it is refused and not executed."""

    delay_ms: int
    code: ErrorCode


class RequestFaults:
    """The faults of the next requests of each API."""

    def __init__(self) -> None:
        self._delays: dict[ApiKey, int] = {}
        self._errors: dict[ApiKey, tuple[ErrorCode, int | None]] = {}

    def delay(self, api: ApiKey, delay_ms: int) -> None:
        """Let every answer of the API come `delay_ms` later from here on."""
        self._delays[api] = delay_ms

    def error(self, api: ApiKey, code: ErrorCode, times: int | None) -> None:
        """Refuse the next `times` requests of the API, without doing them; None: all until `clear`."""
        self._errors[api] = code, times

    def clear(self) -> None:
        """No faults from here on."""
        self._delays.clear()
        self._errors.clear()

    def take(self, api: ApiKey) -> Fault:
        """The fault of an arriving request; a refusal is counted as used."""
        code, left = self._errors.pop(api, (ErrorCode.NONE, 0))
        if left is None:
            self._errors[api] = code, None
        elif left > 1:
            self._errors[api] = code, left - 1
        return Fault(self._delays.get(api, 0), code)
