"""The same requests to Duramen and to Apache Kafka 4: every difference is deliberate and written down.

DIFFERENTIAL_SEED=N runs the sequence of one seed.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from tests.differential.comparing import Difference, differences
from tests.differential.drawing import Step
from tests.differential.peer import CLOSED, Peer, Symbol
from tests.differential.script import Script

from duramen.bench.peers.kafka import ApacheKafka
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.names import api_name
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_SEED: Final = os.environ.get("DIFFERENTIAL_SEED")
_SEEDS: Final = [int(_SEED)] if _SEED else list(range(1, 17))
_STEPS: Final = 300
_SETTLE_S: Final = 30.0
_BEFORE_MS: Final = 300_000
_PAUSE_S: Final = 0.05
_PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)  # fmt: skip
"""Errors that are answered while something is under way: the same request again gets another answer."""
_BRIEF: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS})
_BRIEF_S: Final = 1.0
"""One that older clients are told in their place; it may also be meant."""


# Nothing is to run out while a sequence runs.
_LONG_MS: Final = 1_800_000
_BOTH: Final = {
    "group.consumer.session.timeout.ms": _LONG_MS, "group.consumer.max.session.timeout.ms": _LONG_MS,
    "group.share.session.timeout.ms": _LONG_MS, "group.share.max.session.timeout.ms": _LONG_MS,
    "group.share.record.lock.duration.ms": _LONG_MS,
    "group.share.max.record.lock.duration.ms": _LONG_MS,
}  # fmt: skip
# Apache Kafka assigns in the background, and some time after it has been asked; here every answer is to be final.
_KAFKA: Final = {
    "group.consumer.assignor.offload.enable": "false", "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignor.offload.enable": "false", "group.share.min.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0, "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of both."""
    directory = tmp_path_factory.mktemp("differential")
    with (
        ApacheKafka(directory / "kafka", 512, {**_BOTH, **_KAFKA}) as kafka,
        NodeProcess(directory / "data", {**_BOTH, "group.initial.rebalance.delay.ms": 0}) as node,
    ):
        yield node.kafka, kafka.address
        assert "Traceback" not in node.log_path.read_text()


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.endswith("error_code"):
                yield inner
            else:
                yield from _codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _codes(inner)


def _ask(peer: Peer, step: Step) -> dict[str, Any]:
    """Ask until the answer is no passing one; learn from it."""
    began = time.monotonic()
    message = step.message
    if step.api is ApiKey.PRODUCE:
        message = _stamped(peer, message)
    while True:
        answer = peer.ask(step.api, step.version, message)
        codes, waited_s = set(_codes(answer)), time.monotonic() - began
        if step.until is not None and waited_s < _SETTLE_S and not step.until(answer):
            time.sleep(_PAUSE_S)
            continue
        if not (_PASSING & codes and waited_s < _SETTLE_S) and not (_BRIEF & codes and waited_s < _BRIEF_S):
            break
        time.sleep(_PAUSE_S)
    if step.learn is not None and answer != CLOSED:
        step.learn(peer, answer)
    if step.settle:
        _settle(peer)
    return answer if step.finish is None else step.finish(peer, answer)


def _stamped(peer: Peer, message: Any) -> dict[str, Any]:
    def own(partition: dict[str, Any]) -> dict[str, Any]:
        records = partition["records"]
        return partition | {"records": records.bytes_for(peer) if hasattr(records, "bytes_for") else records}

    topics = [topic | {"partitions": list(map(own, topic["partitions"]))} for topic in message["topics"]]
    return {**message, "topics": topics}


def _settle(peer: Peer) -> None:
    """Wait until all brokers know what the controller decided: twice the same, with leaders."""
    until = time.monotonic() + _SETTLE_S
    before: Any = None
    while time.monotonic() < until:
        answer = peer.ask(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
        codes = set(_codes(answer))
        if answer["topics"] == before and codes <= {0}:
            for topic in answer["topics"]:
                peer.learn(Symbol("topic_id", topic["name"]), topic["topic_id"])
                for partition in topic["partitions"]:
                    name = f"{topic['name']}/{partition['partition_index']}"
                    peer.learn(Symbol("leader_epoch", name), partition["leader_epoch"])
            return
        before = answer["topics"]
        time.sleep(_PAUSE_S)


def _kind(found: Difference) -> tuple[str, ...]:
    """What makes one difference like another: all but the numbers of places."""
    return found.api, re.sub(r"\d+", "N", found.path), str(found.duramen), str(found.kafka)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    _SEEDS,
)
def test_the_answers_are_the_same(peers: tuple[str, str], seed: int, record_property: Any) -> None:
    now_ms = time.time_ns() // 1_000_000
    script = Script(seed, now_ms - _BEFORE_MS)
    found: dict[tuple[str, ...], tuple[int, Step, Difference]] = {}
    deliberate = 0
    with closing(Peer(peers[0], now_ms)) as ours, closing(Peer(peers[1], now_ms)) as theirs:
        for number, step in enumerate([*script.begin(), *(script.next() for _ in range(_STEPS))]):
            answers = [peer.normal(_ask(peer, step)) for peer in (ours, theirs)]
            for difference in differences(api_name(step.api), str(step.message), *answers):
                if difference.deliberate:
                    deliberate += 1
                else:
                    found.setdefault(_kind(difference), (number, step, difference))
    record_property("deliberate", deliberate)
    report = [
        f"{number}: {one.api} {step.version} {one.path}: duramen {one.duramen!s:.300}, kafka {one.kafka!s:.300}\n"
        f"      asked {step.message!s:.400}"
        for number, step, one in found.values()
    ]
    assert not found, f"{len(found)} kinds of differences:\n" + "\n".join(report[:60])
