"""Plain and transactional clients under kill -9, pauses and cut connections, judged by the checker.

CONSISTENCY_SEED=N runs the long test with another seed.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest
from tests.clients import until
from tests.consistency.checker import faults
from tests.consistency.clients import TOPIC, Assigned, Client, PlainSender, Subscribed, Transactions, everything
from tests.consistency.history import Op, Recorder

from duramen.testing import Broker

_PARTITIONS: Final = 3
_SECONDS: Final = 6.0
_LONG_SECONDS: Final = 240.0
_PROCESSES: Final[Sequence[type[Client]]] = (
    PlainSender, PlainSender, Transactions, Transactions, Assigned, Subscribed, Subscribed,
)  # fmt: skip
_END_S: Final = 120.0
_REFUSALS: Final = ("NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT")


def _pid(broker: Broker) -> int:
    """The broker's process: others may run beside it, of tests that went before."""
    assert broker.pid is not None
    return broker.pid


def _kill(broker: Broker, _: random.Random) -> None:
    broker.crash()
    broker.restart()


def _pause(broker: Broker, chance: random.Random) -> None:
    pid = _pid(broker)
    os.kill(pid, signal.SIGSTOP)
    threading.Event().wait(chance.uniform(0.2, 2))
    os.kill(pid, signal.SIGCONT)


def _cut(broker: Broker, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        broker.faults.drop_connections()
        threading.Event().wait(chance.uniform(0, 0.2))


def _refuse(broker: Broker, chance: random.Random) -> None:
    broker.faults.error("Produce", chance.choice(_REFUSALS), chance.randrange(1, 6))
    broker.faults.delay("Produce", chance.choice((0, 20, 200)))
    threading.Event().wait(chance.uniform(0, 0.3))
    broker.faults.delay("Produce", 0)


def _restart(broker: Broker, _: random.Random) -> None:
    broker.restart()


_NEMESES: Final[Mapping[str, Callable[[Broker, random.Random], None]]] = {
    "kill": _kill, "pause": _pause, "refuse": _refuse, "cut": _cut, "restart": _restart,
}  # fmt: skip


def _run(broker: Broker, seed: int, seconds: float, most_s: float) -> list[Op]:
    """Clients for so many seconds, a fault every now and then; their history with everything read in its end."""
    broker.create_stream(TOPIC, _PARTITIONS)
    recorder, chance = Recorder(), random.Random(seed)
    clients = [
        make(process, broker.bootstrap_servers, _PARTITIONS, recorder, seed) for process, make in enumerate(_PROCESSES)
    ]
    for client in clients:
        client.start()
    end_s = time.monotonic() + seconds
    done: list[str] = []
    try:
        names = list(_NEMESES)
        while time.monotonic() < end_s:
            threading.Event().wait(chance.uniform(0.3, most_s))
            name = names[len(done) % len(names)] if len(done) < len(names) else chance.choice(names)
            _NEMESES[name](broker, chance)
            done.append(name)
        until(lambda: not _idle(recorder.history()) or not all(client.is_alive() for client in clients), _END_S)
    finally:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(_END_S)
    assert [client.name for client in clients if client.is_alive()] == []
    assert [client.problem for client in clients if client.problem] == []
    last = len(clients)
    recorder.invoke(last, [])
    recorder.complete(last, "ok", everything(broker.bootstrap_servers, _PARTITIONS))
    history = recorder.history()
    counts = {kind: sum(op.outcome == kind and bool(op.parts) for op in history) for kind in ("ok", "fail", "info")}
    print(f"\nseed {seed}: {counts}, {done}")
    return history


def _idle(history: Sequence[Op]) -> list[str]:
    """The processes that were never told that something was done."""
    done = {op.process for op in history if op.outcome == "ok" and op.parts}
    return [f"{make.__name__} {process}" for process, make in enumerate(_PROCESSES) if process not in done]


def _judge(history: Sequence[Op]) -> None:
    found = faults(history)
    assert not found, {kind: said[:10] for kind, said in found.items()}
    assert _idle(history) == []


def test_a_short_history_is_sound(duramen_broker_factory: Callable[..., Broker]) -> None:
    broker = duramen_broker_factory()
    _judge(_run(broker, 1, _SECONDS, 1.0))
    assert "Traceback" not in broker.log


@pytest.mark.long
def test_a_long_history_is_sound(duramen_broker_factory: Callable[..., Broker]) -> None:
    broker = duramen_broker_factory()
    seed = int(os.environ.get("CONSISTENCY_SEED", "2"))
    _judge(_run(broker, seed, _LONG_SECONDS, 5.0))
    assert "Traceback" not in broker.log
