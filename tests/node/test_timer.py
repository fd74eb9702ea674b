"""The timer of a node: it fires what is due, and nothing once it is stopped."""

import asyncio

from duramen.base.deadlines import Deadlines
from duramen.host.clock import HostClock
from duramen.node.timer import DeadlineTimer


def _fired(*, stop_within: bool) -> list[str]:
    """What fires of four deadlines, of which the second or the test itself stops the timer."""
    clock, deadlines, fired = HostClock(), Deadlines(), list[str]()
    timer = DeadlineTimer(deadlines, clock)

    def again() -> None:
        fired.append("later")
        deadlines.at(0, again)

    async def run() -> None:
        first = asyncio.Event()

        def stop() -> None:
            fired.append("first")
            if stop_within:
                timer.stop()
            first.set()

        timer.start()
        deadlines.at(0, stop)
        await first.wait()
        timer.stop()
        deadlines.at(0, again)
        deadlines.at(clock.monotonic_ms() + 1, again)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, later.set)
        await later.wait()

    asyncio.run(run())
    return fired


def test_a_stopped_timer_fires_nothing_that_was_or_is_registered() -> None:
    assert _fired(stop_within=False) == ["first"]
    assert _fired(stop_within=True) == ["first"]
