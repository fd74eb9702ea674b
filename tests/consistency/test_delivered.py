"""*Delivered means stored*: batches are refused at random; what a client is told of each record is what the log has.

CONSISTENCY_SEED=N runs the long tests with another seed.
"""

import itertools
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pytest
from tests.consistency.checker import faults
from tests.consistency.clients import TOPIC, everything
from tests.consistency.delivered import LIBRARIES, JavaSender, Sender
from tests.consistency.history import Recorder, Send

from duramen.bench.peers.kafka import fetch_jars
from duramen.testing import Broker

_PARTITIONS: Final = 2
_RECORDS: Final = 10
_ROUNDS: Final = 4
_LONG_ROUNDS: Final = 60
_CODES: Final = (
    "NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "LEADER_NOT_AVAILABLE",
)  # fmt: skip
_QUICK: Final[Sequence[str]] = _CODES[:2]

_values = itertools.count(1)


class _Nemesis:
    """Refuses the first batches of a round, and disturbs what follows."""

    def __init__(self, broker: Broker, chance: random.Random, codes: Sequence[str]) -> None:
        self._broker = broker
        self._chance = chance
        self._codes = codes

    def begin(self, number: int) -> None:
        """A round begins, with a new producer."""
        chance, injected = self._chance, self._broker.faults
        injected.error("Produce", self._codes[number % len(self._codes)], times=chance.choice((1, 1, 2, 3)))
        injected.delay("Produce", chance.choice((0, 0, 5, 60)))

    def disturb(self) -> None:
        """The producer of a round is known by now."""
        if self._chance.random() < 0.5:
            self._broker.faults.error("Produce", self._chance.choice(self._codes), times=1)
        elif self._chance.random() < 0.5:
            self._broker.faults.drop_connections()


def _judged(broker: Broker, sender: type[Sender], seed: int, rounds: int, codes: Sequence[str]) -> None:
    """Rounds of records, each of a new producer that is refused at first; then all that is there decides."""
    broker.create_stream(TOPIC, _PARTITIONS)
    recorder, chance = Recorder(), random.Random(seed)
    nemesis = _Nemesis(broker, chance, codes)
    for number in range(rounds):
        client = sender(broker.bootstrap_servers, TOPIC)
        keys = [0] * _RECORDS if number == 0 else [chance.randrange(_PARTITIONS) for _ in range(_RECORDS)]
        for happens in (partial(nemesis.begin, number), nemesis.disturb):
            happens()
            sends = [Send(key, next(_values)) for key in keys]
            recorder.invoke(number, sends)
            told = client.send(sends)
            recorder.complete(number, "ok" if all(one.delivered for one in told) else "info", told)
        broker.faults.clear()
        client.close()
    recorder.invoke(rounds, [])
    recorder.complete(rounds, "ok", everything(broker.bootstrap_servers, _PARTITIONS))
    found = faults(recorder.history())
    assert not found, {kind: said[:10] for kind, said in found.items()}
    assert all(f"answered with {code}" in broker.log for code in codes)
    assert "Traceback" not in broker.log


@pytest.mark.variants(1)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_delivered_is_stored(duramen_broker_factory: Callable[..., Broker], library: str) -> None:
    _judged(duramen_broker_factory(), LIBRARIES[library], 1, _ROUNDS, _QUICK)


@pytest.mark.long
@pytest.mark.parametrize("library", [*LIBRARIES, "java"])
def test_what_is_delivered_is_stored_in_many_rounds(
    duramen_broker_factory: Callable[..., Broker], library: str
) -> None:
    seed = int(os.environ.get("CONSISTENCY_SEED", "2"))
    sender = LIBRARIES.get(library, JavaSender)
    if sender is JavaSender:
        JavaSender.jars = fetch_jars()
    _judged(duramen_broker_factory(), sender, seed, 10 if sender is JavaSender else _LONG_ROUNDS, _CODES)
