"""What the clients of simulated runs do: through the Kafka door, in transactions, on a node that refuses to start."""

import pytest

from duramen.sim.runs import run_one

SEEDS = range(1, 81)


@pytest.fixture(scope="module")
def trace() -> str:
    lines: list[str] = []
    for seed in SEEDS:
        assert not run_one(seed, lines.append).broken
    return "\n".join(lines)


@pytest.mark.parametrize(
    "happened",
    [
        "clients come through the Kafka door",
        "t1: producer ",
        " is committed",
        "is to be aborted",
        "are lost to damage",
        " is cut to ",
        "the node does not start: the metadata log (logs/1) is damaged",
    ],
)
def test_it_happens_in_a_few_runs(trace: str, happened: str) -> None:
    assert happened in trace
