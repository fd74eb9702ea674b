"""Old garbage waits for a quiet moment."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from duramen.node import garbage as collecting
from duramen.node.garbage import GarbageCollection


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_the_oldest_generation_is_collected_when_the_node_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(collecting, "_IDLE_SHARE", 100.0)  # whatever this process does counts as idle

    async def scenario() -> None:
        running = GarbageCollection()
        running.start()
        cycle = Cycle()
        gc.collect(1)
        gc.collect(1)  # it is old now
        gone = asyncio.Event()
        weakref.finalize(cycle, gone.set)
        del cycle
        await asyncio.wait_for(gone.wait(), 60)
        running.stop()

    before = gc.get_threshold()
    asyncio.run(scenario())
    assert gc.get_threshold() == before


@pytest.mark.parametrize("collect", [True, False])
def test_garbage_of_start_up_goes_in_the_first_quiet_moment(monkeypatch: pytest.MonkeyPatch, *, collect: bool) -> None:
    monkeypatch.setattr(collecting, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(collecting, "_IDLE_SHARE", 100.0)

    async def scenario() -> bool:
        cycle = Cycle()
        gone = asyncio.Event()
        weakref.finalize(cycle, gone.set)
        del cycle
        running = GarbageCollection()
        running.start(collect=collect)
        at_once = gone.is_set()
        marker = Cycle()  # seen only by a later collection, which is the one to wait for
        seen = asyncio.Event()
        weakref.finalize(marker, seen.set)
        gc.collect(1)
        gc.collect(1)
        del marker
        await asyncio.wait_for(seen.wait(), 60)
        running.stop()
        return gone.is_set() and not at_once

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        assert asyncio.run(scenario()) is collect
    finally:
        if was_enabled:
            gc.enable()


def test_a_busy_node_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_INTERVAL_S", 0.001)
    monkeypatch.setattr(collecting, "_IDLE_SHARE", -1.0)  # it is never idle

    async def scenario() -> int:
        running = GarbageCollection()
        running.start()
        before = int(gc.get_stats()[2]["collections"])
        gc.collect(1)
        await asyncio.sleep(0.05)
        running.stop()
        return int(gc.get_stats()[2]["collections"]) - before

    assert asyncio.run(scenario()) == 0
