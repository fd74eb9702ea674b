"""Latency of single records with and without compaction of another log, alternating, on one node."""

import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.base.units import MIB
from duramen.bench.contenders import Contender
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured
from duramen.bench.scenarios.effort import Effort
from duramen.node.process import NodeProcess

__all__ = ["measure", "steps"]

_RATE_HZ: Final = 200.0
_RECORD_BYTES: Final = 1024
_WARM: Final = Schedule(200.0, 0.5)
_WANTED: Final = 1.3
_KEYED_BYTES: Final = 200
_KEYS: Final = 20_000
_SEGMENT_BYTES: Final = 2 * MIB
_WAIT_S: Final = 120.0
# Small, so that checkpoints, before which nothing is compacted, come while the streams are filled.
_SETTINGS: Final[Mapping[str, object]] = {
    "log.cleaner.backoff.ms": 100, "wal.file.bytes": 4 * MIB, "wal.max.bytes": 32 * MIB,
}  # fmt: skip
_TARGET: Final = f"p99 of single records at {_RATE_HZ:g}/s, 1 KiB, while a log is compacted"


def steps(effort: Effort) -> int:
    """How many jobs there are."""
    return 2 * effort.rounds


def measure(directory: Path, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    """The p99 with compaction by that without."""
    schedule = Schedule(_RATE_HZ, effort.paced_s)
    took_us: dict[bool, list[int]] = {False: [], True: []}
    with NodeProcess(directory / "compaction", _SETTINGS) as node:
        _ask(node, "POST", "/v1/streams", {"name": "single"})
        single = Contender("duramen", "sync", "kafka", node.kafka, "single", "single", node.kafka)
        for number in range(effort.rounds):
            name = f"keyed-{number}"
            worker.say("filling a stream that is to be compacted")
            _fill(node, name, effort.paced_s)
            for compacting in ((False, True), (True, False))[number % 2]:
                if compacting:
                    _ask(node, "PATCH", f"/v1/streams/{name}", {"config": {"cleanup.policy": "compact"}})
                    _until(node, running=True)
                what = f"{_RATE_HZ:g} records of 1 KiB a second, {'with' if compacting else 'without'} compaction"
                found = worker.run(what, pace, single, _RECORD_BYTES, _WARM, schedule)
                if compacting and not _running(node):
                    return [not_measured(_TARGET, _wanted(), "compaction ended before the load did")]
                if compacting:
                    _ask(node, "DELETE", f"/v1/streams/{name}")
                    _until(node, running=False)
                took_us[compacting] += found
    return [_outcome(Latencies(took_us[False]), Latencies(took_us[True]))]


def _wanted() -> str:
    return f"at most {_WANTED:g} x without"


def _outcome(without: Latencies, during: Latencies) -> TargetOutcome:
    without_ms, during_ms = without.at_ms(99), during.at_ms(99)
    if without_ms is None or during_ms is None:
        return not_measured(_TARGET, _wanted(), f"{during.count} samples are too few")
    figures = f"p50 {during.at_ms(50) or 0:.2f} and {without.at_ms(50) or 0:.2f} ms, p99 {during_ms:.2f} and"
    return at_most(_TARGET, during_ms / without_ms, _WANTED, "x", f"{figures} {without_ms:.2f} ms", "p99 without")


def _fill(node: NodeProcess, name: str, paced_s: float) -> None:
    """A stream with more than a round compacts while the load lasts."""
    rate = _setting(node, "log.cleaner.io.max.bytes.per.second")
    config = {"segment.bytes": _SEGMENT_BYTES, "min.cleanable.dirty.ratio": 0}
    _ask(node, "POST", "/v1/streams", {"name": name, "partitions": 1, "config": config})
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    value = bytes(_KEYED_BYTES)
    # Half of the time to take in the keys, half or more to write what stays; some is left over, however slow it begins.
    for number in range(int(rate * (paced_s + 2) / 2) // (_KEYED_BYTES + 20)):
        producer.produce(name, value, b"%d" % (number % _KEYS))
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(_WAIT_S):
        raise RequestTimedOut("the stream that is to be compacted could not be filled")


def _setting(node: NodeProcess, name: str) -> int:
    configs = _ask(node, "GET", "/v1/configs")["configs"]
    return next(int(one["value"]) for one in configs if one["name"] == name)


def _running(node: NodeProcess) -> bool:
    lines = _ask(node, "GET", "/metrics", text=True).splitlines()
    return any(line.startswith("duramen_compaction_running 1") for line in lines)


def _until(node: NodeProcess, *, running: bool) -> None:
    deadline = time.monotonic() + _WAIT_S
    while _running(node) != running:
        if time.monotonic() > deadline:
            raise RequestTimedOut("compaction did not begin" if running else "compaction did not end")
        time.sleep(0.05)


def _ask(node: NodeProcess, method: str, path: str, body: object = None, *, text: bool = False) -> Any:
    connection = http.client.HTTPConnection(node.http, timeout=_WAIT_S)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise RequestInvalid(f"{method} {path}: {content}")
    return content if text or not content else json.loads(content)
