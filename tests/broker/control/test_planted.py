"""The simulation finds bugs that are planted, each in the seed that first found it or one nearby."""

import pytest
from tests.broker.control.planted import BUGS
from tests.broker.control.simulation import Simulation
from tests.controller.quorum.witness import Broken

FOUND = {
    "decides on what is committed": 0,
    "answers what is proposed": 0,
    "takes what is not known for not done": 6,
    "is active before it has applied what was before": 0,
    "begins with sessions that are nearly over": 0,
    "asks everything again": 2,
    "says that all nodes know without asking them": 1,
    "stays active when it leads no more": 0,
}
NEARBY = 10


def test_each_bug_has_its_seed() -> None:
    assert list(FOUND) == list(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    with BUGS[name](), pytest.raises(Broken):  # noqa: PT012  # the seeds are tried one after another
        for seed in range(FOUND[name], FOUND[name] + NEARBY):
            Simulation(seed).run()
