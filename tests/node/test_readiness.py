"""Why a node is not ready: all that is known, and what lasts."""

from duramen.node.readiness import Lasting, Readiness
from duramen.sim.machine.scheduler import VirtualClock


def test_an_obstacle_counts_once_it_has_lasted() -> None:
    clock, found = VirtualClock(), [""]
    readiness = Readiness()
    readiness.add(lambda: "full")
    readiness.add(Lasting(lambda: found[0], 3_000, clock).problem)

    def after(ms: int, words: str) -> str:
        clock.now_us += 1_000 * ms
        found[0] = words
        return readiness.problem()

    assert after(0, "no controller") == "full"
    assert after(2_999, "no controller") == "full"
    assert after(1, "no controller") == "full; no controller"
    assert after(0, "") == "full"
    assert after(0, "no controller") == "full"
    assert after(3_000, "no controller") == "full; no controller"
