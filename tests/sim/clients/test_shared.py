"""What the clients of simulated runs do: through the Kafka door, in transactions, on a node that refuses to start."""

import pytest

from duramen.sim.runs import run_one

SEEDS = range(1, 81)
HAPPENS = (
    "clients come through the Kafka door",
    "t1: producer ",
    " is committed",
    "is to be aborted",
    "are lost to damage",
    " is cut to ",
    "the node does not start: the metadata log (logs/1) is damaged",
)


@pytest.fixture(scope="module")
def trace() -> str:
    """What happens in as few runs as it takes."""
    found = ""
    for seed in SEEDS:
        lines: list[str] = []
        assert not run_one(seed, lines.append).broken
        found = "\n".join([found, *lines])
        if all(one in found for one in HAPPENS):
            break
    return found


@pytest.mark.parametrize("happened", HAPPENS)
def test_it_happens_in_a_few_runs(trace: str, happened: str) -> None:
    assert happened in trace
