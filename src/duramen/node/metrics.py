"""Metrics of the process: its use of the machine, event loop delays, pauses of the garbage collector."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from duramen.base.metrics import Counter, Histogram, Metrics, Sample
from duramen.host.memory import resident_bytes

__all__ = ["ProcessMetrics"]

_INTERVAL_S: Final = 0.2


class ProcessMetrics:
    """Measures from `start` to `stop`; the node's event loop runs."""

    def __init__(self, metrics: Metrics, look: Callable[[], object] = lambda: None) -> None:
        """`look` is called periodically, for observations that need no request."""
        self._loop_delay = _LoopDelay(
            metrics.histogram("duramen_event_loop_delay_seconds"),
            metrics.counter("duramen_event_loop_delay_longest_seconds"),
            look,
        )
        self._gc_pauses = _GcPauses(
            metrics.histogram("duramen_gc_pause_seconds"), metrics.counter("duramen_gc_pause_longest_seconds")
        )
        metrics.compute("duramen_process_resident_bytes", _resident)
        metrics.compute("duramen_process_cpu_seconds_total", lambda: [((), time.process_time())])

    def start(self) -> None:
        """Begin."""
        self._loop_delay.start()
        gc.callbacks.append(self._gc_pauses)

    def stop(self) -> None:
        """End; no effect before `start`."""
        self._loop_delay.stop()
        if self._gc_pauses in gc.callbacks:
            gc.callbacks.remove(self._gc_pauses)


def _resident() -> list[Sample]:
    size = resident_bytes()
    return [] if size is None else [((), size)]


class _LoopDelay:
    """A timer that records its delays."""

    def __init__(self, histogram: Histogram, longest: Counter, look: Callable[[], object]) -> None:
        self._histogram = histogram
        self._longest = longest
        self._look = look
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        self._due_s = time.perf_counter() + _INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._fire)

    def _fire(self) -> None:
        late_s = max(0.0, time.perf_counter() - self._due_s)
        self._histogram.observe(late_s)
        self._longest.value = max(self._longest.value, late_s)
        self._look()
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _GcPauses:
    """Called by the interpreter before and after each collection, in any thread."""

    def __init__(self, histogram: Histogram, longest: Counter) -> None:
        self._histogram = histogram
        self._longest = longest
        self._began_s = -1.0

    def __call__(self, phase: Literal["start", "stop"], _: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        elif self._began_s >= 0:
            took_s = time.perf_counter() - self._began_s
            self._histogram.observe(took_s)
            self._longest.value = max(self._longest.value, took_s)
            self._began_s = -1.0
