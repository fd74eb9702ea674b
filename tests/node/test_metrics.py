"""The node's own delays are noticed."""

import asyncio
import gc
import time

from duramen.base.metrics import Metrics
from duramen.node.metrics import ProcessMetrics


def test_a_late_loop_is_noticed() -> None:
    metrics = Metrics()
    measuring = ProcessMetrics(metrics)
    delay = metrics.histogram("duramen_event_loop_delay_seconds")

    async def keep_the_loop_busy() -> None:
        measuring.start()
        busy_until = time.perf_counter() + 0.5
        while time.perf_counter() < busy_until:
            pass
        await asyncio.sleep(0.001)  # what fell due before comes first
        measuring.stop()

    asyncio.run(keep_the_loop_busy())
    assert delay.sum > 0.25


def test_collections_are_counted_while_it_runs() -> None:
    metrics = Metrics()
    measuring = ProcessMetrics(metrics)
    pauses = metrics.histogram("duramen_gc_pause_seconds")
    measuring.stop()  # before it began: nothing

    async def collect() -> None:
        measuring.start()
        gc.collect()
        measuring.stop()

    asyncio.run(collect())
    counted = sum(pauses.counts)
    assert counted >= 1
    assert pauses.sum > 0
    gc.collect()
    assert sum(pauses.counts) == counted
