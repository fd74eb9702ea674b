"""Catching up after a week away: a consumer knows each key once, and then there are many updates of all keys.

It reads the changes of Duramen's snapshots, its live topic, and the whole log; and where asked a compacted topic of
Apache Kafka before its cleaner has run and after. All of them come to the same state, which is checked.
"""

import time
from pathlib import Path
from typing import Final

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.load.catching_up import CaughtUp, catch_up_by_changes, catch_up_by_topic
from duramen.bench.load.keyed import VALUE_BYTES
from duramen.bench.load.keyed_batches import KEY_BYTES, produce_keys
from duramen.bench.load.worker import LoadWorker
from duramen.bench.peers.kafka import ApacheKafka
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured, told
from duramen.client import BrokerCluster, StreamAdmin
from duramen.client.api.client import connect
from duramen.client.api.http import Config
from duramen.node.process import NodeProcess

__all__ = ["measure_week", "week_steps"]

_STREAM: Final = "users"
_LIVE: Final = "users.live"
_MOST: Final = 1.2
_TIMES: Final = 3
_LONG_MS: Final = 7 * 24 * 3600 * 1000
_SEGMENT_BYTES: Final = 64 << 20
_SECOND_MS: Final = 1000
_LOOK_S: Final = 0.2
_KAFKA_SHARE: Final = 0.5
"""Of the time, for Apache Kafka."""


def week_steps(*, peer: bool) -> int:
    """How many jobs there are."""
    return 2 + 2 * _TIMES + 1 + ((2 + 1 + _TIMES) if peer else 0)


def measure_week(
    directory: Path, worker: LoadWorker, *, keys: int, updates: int, peer: bool, until_s: float
) -> list[TargetOutcome]:
    """So many keys, each once, then so many updates, of each system; fewer updates where there is no time for them."""
    share = 1 - _KAFKA_SHARE if peer else 1.0
    found = _ours(directory / "week", worker, keys, updates, time.time() + share * (until_s - time.time()))
    changes, *_, whole = found.values()
    if peer:
        found |= _kafka(directory / "kafka", worker, keys, whole.records, until_s)
    _check_same(found)
    live_bytes = changes.records * (KEY_BYTES + VALUE_BYTES)
    outcomes = [
        at_most(
            f"bytes sent for the changes after {keys:,} keys and {whole.records:,} updates",
            changes.received_bytes / max(1, live_bytes), _MOST, "x",
            f"{changes.received_bytes:,} B, {changes.records:,} live records", "keys and values of the live records",
        )
    ]  # fmt: skip
    for name, one in found.items():
        figures = f"{one.received_bytes / keys:,.0f} B sent for each key, {one.took_s:.2f} s, {one.records:,} records"
        outcomes.append(told(f"catching up by {name}", figures))
    return outcomes if peer else [*outcomes, not_measured("catching up by Apache Kafka", "", "no --peer kafka")]


def _check_same(found: dict[str, CaughtUp]) -> None:
    if len({(one.keys, one.digest) for one in found.values()}) != 1:
        states = ", ".join(f"{name}: {one.keys:,} keys, {one.digest:x}" for name, one in found.items())
        raise RequestInvalid(f"not all came to the same state: {states}")


def _produced(worker: LoadWorker, address: str, keys: int, updates: int, until_s: float, name: str) -> int:
    """Where the log ends then."""
    first = worker.run(
        f"{keys:,} keys to {name}", produce_keys, address, _STREAM, 0, keys, keys, VALUE_BYTES, until_s, drawn=False
    )
    if first < keys:
        raise RequestTimedOut(f"there was no time for {keys:,} keys: give it more --minutes, or fewer --keys")
    return worker.run(
        f"{updates:,} updates to {name}", produce_keys, address, _STREAM, first, keys + updates, keys, VALUE_BYTES,
        until_s, drawn=True,
    )  # fmt: skip


def _ours(directory: Path, worker: LoadWorker, keys: int, updates: int, until_s: float) -> dict[str, CaughtUp]:
    with NodeProcess(directory) as node, connect(node.http, timeout_s=600.0) as client:
        # The consumer is away for longer than snapshots are kept; the log is as it was written.
        config: Config = {
            "cleanup.policy": "compact", "min.compaction.lag.ms": _LONG_MS, "keyed": True, "keyed.live.topic": _LIVE,
            "snapshot.retention.ms": _SECOND_MS,
        }  # fmt: skip
        client.streams.create(_STREAM, config=config)
        _produced(worker, node.kafka, keys, updates, (time.time() + until_s) / 2, "Duramen")
        client.snapshot(_STREAM)
        changes = [
            worker.run("Duramen's changes", catch_up_by_changes, node.http, _STREAM, keys) for _ in range(_TIMES)
        ]
        live = _read(worker, "Duramen's live topic", node.kafka, _LIVE, keys, until_s, _TIMES)
        whole = _read(worker, "Duramen's whole log", node.kafka, _STREAM, keys, until_s)
        return {
            "changes of Duramen's snapshots": _middle(changes),
            "Duramen's live topic, librdkafka": live,
            "Duramen's whole log, librdkafka": whole,
        }


def _kafka(directory: Path, worker: LoadWorker, keys: int, updates: int, until_s: float) -> dict[str, CaughtUp]:
    with ApacheKafka(directory, settings={"log.cleaner.backoff.ms": _SECOND_MS}) as kafka:
        config = {
            "cleanup.policy": "compact", "min.compaction.lag.ms": str(_LONG_MS), "segment.bytes": str(_SEGMENT_BYTES),
        }  # fmt: skip
        with BrokerCluster(kafka.address) as cluster:
            admin = StreamAdmin(cluster)
            admin.create_stream(_STREAM, 1, config)
            _produced(worker, kafka.address, keys, updates, until_s, "Apache Kafka")
            before = _read(worker, "Kafka's log, not cleaned", kafka.address, _STREAM, keys, until_s)
            admin.set_stream_configs(_STREAM, {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.001"})
            worker.say("waiting for Kafka's cleaner")
            cleaned_s = _wait_cleaned(kafka, until_s)
            worker.step()
        after = _read(worker, "Kafka's cleaned log", kafka.address, _STREAM, keys, until_s, _TIMES)
        return {
            "Apache Kafka before its cleaner has run": before,
            f"Apache Kafka after that, {cleaned_s:.0f} s of cleaning": after,
        }


def _read(
    worker: LoadWorker, what: str, address: str, topic: str, keys: int, until_s: float, times: int = 1
) -> CaughtUp:
    return _middle([worker.run(what, catch_up_by_topic, address, topic, keys, until_s) for _ in range(times)])


def _middle(found: list[CaughtUp]) -> CaughtUp:
    return sorted(found, key=lambda one: one.took_s)[len(found) // 2]


def _wait_cleaned(kafka: ApacheKafka, until_s: float) -> float:
    """Wait until the cleaner has come to the segment that is written to, which it leaves as it is."""
    began_s = time.monotonic()
    partition = kafka.logs / f"{_STREAM}-0"
    active = max(int(path.stem) for path in partition.glob("*.log"))
    while _cleaned_to(kafka.logs / "cleaner-offset-checkpoint") < active:
        if time.time() > until_s:
            raise RequestTimedOut("Kafka's cleaner has not come to its end: give it more --minutes, or fewer --updates")
        time.sleep(_LOOK_S)
    return time.monotonic() - began_s


def _cleaned_to(checkpoint: Path) -> int:
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{_STREAM} 0 ")), -1)
