"""Many partitions on three nodes: creation speed, and time to elect leaders after a node fails."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most, told
from duramen.bench.several import NODES, Several
from duramen.bench.system import cpu_s, use
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.versions import ApiKey

__all__ = ["measure", "steps"]

_PARTITIONS: Final = 30_000
_OF_A_STREAM: Final = 10
_AT_ONCE: Final = 25
_ASKED_OF: Final = 60
_WANTED_S: Final = 2.0
_WANTED_HZ: Final = 1000.0
_PATIENCE_S: Final = 180.0
_PAUSE_S: Final = 0.01
_CALM_S: Final = 1.0
_CALM_SHARE: Final = 0.2  # of one processor, in that time
_NOBODY: Final = UUID(int=0)


def steps(rounds: int) -> int:
    """How many there are."""
    return 1 + 4 * rounds


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """30,000 partitions with three replicas, fewer by `scale`.

    Each round kills a node twice, one that controls too, and starts it while the others are busy with its end; stops
    one that controls in order and starts it again; and kills one that controls, and starts it once the others are calm.
    Each of these begins once all nodes are calm.
    """
    streams = max(_AT_ONCE, int(_PARTITIONS * scale) // _OF_A_STREAM)
    gone_s: dict[bool, list[float]] = {False: [], True: []}
    back_s: list[float] = []
    stopped_s: list[float] = []
    restarted_s: list[float] = []
    crashed_s: list[float] = []
    with Several(directory / "partitions") as several:
        worker.say(f"making {streams * _OF_A_STREAM:,} partitions")
        took_s = _make(several, streams)
        worker.step()
        _wait("all are calm", partial(_calm, several, NODES))
        memory = max(use(several.processes.nodes[number].pid).resident_mib for number in NODES)
        for _ in range(rounds):
            for controls in (False, True):
                worker.say("killing a node that leads the controller" if controls else "killing a node")
                gone, back = _round(several, streams, controls=controls)
                gone_s[controls].append(gone)
                back_s.append(back)
                worker.step()
            worker.say("restarting the node that leads the controller")
            stopped, restarted = _restart(several, streams)
            stopped_s.append(stopped)
            restarted_s.append(restarted)
            worker.step()
            worker.say("killing the node that leads the controller, and waiting until the others have done with it")
            crashed_s.append(_crash(several, streams))
            worker.step()
    count = streams * _OF_A_STREAM
    rate = count / took_s
    return [
        TargetOutcome(
            "partitions made", f"at least {_WANTED_HZ:g} a second",
            f"{rate:,.0f} a second ({count:,} in {took_s:.1f} s, {_OF_A_STREAM} a stream)", rate >= _WANTED_HZ,
            "" if rate >= _WANTED_HZ else f"{100 * (1 - rate / _WANTED_HZ):.0f} % short",
        ),
        _longest("everything led again: a node with a third of the leaders killed", gone_s[False]),
        _longest("everything led again: killed, and led the controller", gone_s[True]),
        _longest("a killed node ready again, the others busy with its end", back_s),
        _longest("the controller stopped in order, and started at once: ready", restarted_s),
        _longest("the controller killed, and started once the others are calm: ready", crashed_s),
        told("the controller stopped in order: until it had drained and ended", f"{max(stopped_s):.1f} s"),
        told("memory of a node", f"{memory:,.0f} MiB"),
    ]  # fmt: skip


def _longest(target: str, found: list[float]) -> TargetOutcome:
    return at_most(target, max(found), _WANTED_S, "s", f"the longest of {len(found)}")


def _make(several: Several, streams: int) -> float:
    """Seconds that it takes. Raises RequestInvalid."""
    admin = several.admin()
    began_s = time.monotonic()
    for first in range(0, streams, _AT_ONCE):
        names = [_name(number) for number in range(first, min(first + _AT_ONCE, streams))]
        topics = [NewTopic(name, _OF_A_STREAM, len(NODES)) for name in names]
        made = admin.create_topics(topics, request_timeout=_PATIENCE_S, operation_timeout=_PATIENCE_S)
        for name, result in made.items():
            try:
                result.result()
            except KafkaException as error:
                raise RequestInvalid(f"creating {name}: {error}") from None
    return time.monotonic() - began_s


def _name(number: int) -> str:
    return f"many{number}"


def _round(several: Several, streams: int, *, controls: bool) -> tuple[float, float]:
    """Seconds until both others say that all is led again, and until the node that went is ready again."""
    asked = _asked(streams)
    controller = _controller(several)
    gone = controller if controls else _others(controller)[0]
    failed_over_s = _kill(several, gone, asked)
    return failed_over_s, _start(several, gone, asked)


def _others(number: int) -> list[int]:
    return [one for one in NODES if one != number]


def _kill(several: Several, gone: int, asked: list[str]) -> float:
    """Seconds until both others say that all is led again."""
    began_s = time.monotonic()
    several.processes.kill(gone)
    for number in _others(gone):
        _wait(f"all partitions are led without node {gone}", partial(_led, several, number, asked, gone))
    return time.monotonic() - began_s


def _restart(several: Several, streams: int) -> tuple[float, float]:
    """Seconds until who leads the controller has drained and ended, and, started again at once, until it is ready."""
    controller = _controller(several)
    began_s = time.monotonic()
    several.processes.stop(controller)
    stopped_s = time.monotonic() - began_s
    return stopped_s, _start(several, controller, _asked(streams))


def _crash(several: Several, streams: int) -> float:
    """Seconds until who led the controller is ready again, where the others have done with its end."""
    controller, asked = _controller(several), _asked(streams)
    _kill(several, controller, asked)
    _wait("the others are calm", partial(_calm, several, _others(controller)))
    return _start(several, controller, asked)


def _calm(several: Several, nodes: Sequence[int]) -> bool:
    """Whether all of these together hardly use the processor."""
    processes = [several.processes.nodes[number].pid for number in nodes]
    before_s = sum(map(cpu_s, processes))
    time.sleep(_CALM_S)
    return sum(map(cpu_s, processes)) - before_s < _CALM_SHARE * _CALM_S


def _start(several: Several, number: int, asked: list[str]) -> float:
    """Seconds until a node that went is ready again; then it comes to be in sync, leads what it led, all calm."""
    began_s = time.monotonic()
    several.processes.start([number])
    ready_s = time.monotonic() - began_s
    _wait(f"node {number} is in sync", partial(_in_sync, several, asked))
    _balance(several)
    _wait("all are calm", partial(_calm, several, NODES))
    return ready_s


def _asked(streams: int) -> list[str]:
    """The streams that nodes are asked about."""
    return [_name(number) for number in range(0, streams, max(1, streams // _ASKED_OF))]


def _controller(several: Several) -> int:
    return int(several.server(NODES[0]).get("/v1/cluster")["quorum"]["leader_id"])


def _balance(several: Several) -> None:
    """Have preferred leaders lead again, so that the next node that goes has a third of them."""
    several.server(NODES[0]).ask("POST", "/v1/cluster/elections", {}, timeout_s=_PATIENCE_S)


def _wait(what: str, met: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not met():
        if time.monotonic() > until_s:
            raise DuramenError(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(_PAUSE_S)


def _led(several: Several, asked_node: int, streams: list[str], gone: int) -> bool:
    """Whether a node tells clients of a leader, other than `gone`, for every partition of these streams."""
    return all(leader >= 0 and leader != gone for leader, _ in _layout(several, asked_node, streams))


def _in_sync(several: Several, streams: list[str]) -> bool:
    return all(count == len(NODES) for _, count in _layout(several, NODES[0], streams))


def _layout(several: Several, asked_node: int, streams: list[str]) -> list[tuple[int, int]]:
    """The leader of each partition of these streams as a node says, and how many are in sync."""
    host, _, port = several.processes.nodes[asked_node].kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="bench", timeout_s=_PATIENCE_S)
    try:
        request = {
            "topics": [{"name": name, "topic_id": _NOBODY} for name in streams],
            "allow_auto_topic_creation": False,
        }
        answer = connection.request(ApiKey.METADATA, request)
    finally:
        connection.close()
    return [(one["leader_id"], len(one["isr_nodes"])) for topic in answer["topics"] for one in topic["partitions"]]
