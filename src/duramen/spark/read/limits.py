"""The limits of a micro-batch: how much it reads, and how long it waits for that."""

import logging
import math
import time
from typing import Final

from duramen.base.errors import OptionInvalid
from duramen.base.units import parse_ms
from duramen.spark.api import HAS_LIMITS, ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from duramen.spark.options import Options

__all__ = ["BatchLimits"]

_log = logging.getLogger("duramen.spark")

_MOST: Final = "maxOffsetsPerTrigger"
_LEAST: Final = "minOffsetsPerTrigger"


class BatchLimits:
    """The options `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._most, self._least = options.number(_MOST), options.number(_LEAST)
        if self._most is not None and self._least is not None and self._least > self._most:
            raise OptionInvalid(f"{_LEAST} is larger than {_MOST}")
        try:
            self._patience_s = parse_ms(options.text("maxTriggerDelay")) / 1000
        except ValueError as error:
            raise OptionInvalid(f"maxTriggerDelay: {options.text('maxTriggerDelay')!r} does not fit: {error}") from None
        if not HAS_LIMITS and (self._most is not None or self._least is not None):
            _log.warning("%s and %s need PySpark 4.2: a micro-batch has all there is", _MOST, _LEAST)
        self._triggered_s = -math.inf  # the first micro-batch never waits

    @property
    def default(self) -> ReadLimit:
        """The default limit of each micro-batch."""
        if self._most is not None:
            return ReadMaxRows(self._most)
        return ReadMinRows(self._least) if self._least is not None else ReadAllAvailable()

    def waits(self, there: int, limit: ReadLimit) -> bool:
        """Whether that many records are too few for a micro-batch."""
        if self._least is None or not isinstance(limit, ReadMaxRows | ReadMinRows):
            return False
        now_s = time.monotonic()
        if there < self._least and now_s - self._triggered_s < self._patience_s:
            return True
        self._triggered_s = now_s
        return False
