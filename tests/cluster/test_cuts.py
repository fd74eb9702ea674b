"""A leader is cut off, and another node is killed as the network heals, under clients with several batches in flight.

Every record of which a producer is told that it is stored is stored once, and a copier in transactions goes on.
It finds repetitions that a partition does not recognise. It has not brought about the answers on which librdkafka
raises its epoch: `tests/consistency/test_epochs.py` does.
CLUSTER_SEED=N runs the long test with another seed, CLUSTER_ROUNDS=N so many rounds.
"""

import os
import random
import time
from pathlib import Path
from typing import Final

import pytest
from tests.cluster.judged import cut_and_kill, running, world
from tests.consistency.clients import Copier, Pipelined

_CLIENTS: Final = (Pipelined, Pipelined, Copier, Copier)
_ROUNDS: Final = 20


@pytest.mark.long
def test_nothing_is_stored_twice_and_no_transaction_hangs(tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("CLUSTER_SEED", "1"))
    with world(tmp_path) as cluster, running(cluster, _CLIENTS) as run:
        for number in range(int(os.environ.get("CLUSTER_ROUNDS", _ROUNDS))):
            cut_and_kill(cluster, run, chance)
            print(f"round {number} at {time.monotonic():.0f} s", flush=True)
