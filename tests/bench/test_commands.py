"""The commands from end to end, as short as they can be."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from duramen.spark.batches import native


def _bench(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duramen", "bench", *arguments],
        cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def _document(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("door", "sizes", "runs"), [pytest.param("kafka", [256, 1_000_000], 2, marks=pytest.mark.long), ("nats", [1024], 1)]
)
def test_latency(tmp_path: Path, door: str, sizes: list[int], runs: int) -> None:
    asked = [word for size in sizes for word in ("--size", str(size))]
    ran = _bench(
        tmp_path, "latency", "--door", door, "--duration", "0.2", "--rate", "200", "--runs", str(runs),
        "--durability", "sync", *asked,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "duramen sync" in ran.stdout
    output = tmp_path / "duramen-bench"
    cells = _document(output / f"latency-{door}.json")["latency"]
    assert [(cell["name"], cell["value_bytes"]) for cell in cells] == [
        (name, size) for size in sizes for name in ("bare write + fdatasync", "bare write", "duramen sync")
    ]
    for cell in cells:
        assert [run["samples"] for run in cell["runs"]] == [40] * runs
        assert cell["samples"] == 40 * runs
        assert set(cell["percentiles_ms"]) == {"0", "10", "25", "50", "75"}
    assert (output / f"latency-{door}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in output.iterdir()) == [f"latency-{door}.json", f"latency-{door}.png"]


@pytest.mark.variants(1)
@pytest.mark.parametrize("door", ["kafka", "nats"])
def test_throughput(tmp_path: Path, door: str) -> None:
    ran = _bench(
        tmp_path, "throughput", "--door", door, "--messages", "300", "--size", "256B", "--size", "1MB",
        "--bytes", "4MB", "--durability", "sync", "--durability", "memory", "--peer", "jetstream",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    cells = _document(tmp_path / "duramen-bench" / f"throughput-{door}.json")["throughput"]
    of = {(cell["name"], cell["value_bytes"]): cell for cell in cells}
    assert of["duramen sync", 256]["messages"] == 300
    assert of["duramen sync", 1_000_000]["messages"] == 4
    assert len(of["duramen sync", 256]["subscribe_s"]) == 1
    assert of["duramen memory", 256]["subscribe_s"] == []
    assert len(of["jetstream sync always", 256]["publish_s"]) == 1
    assert len(of["jetstream sync always", 256]["subscribe_s"]) == 1


@pytest.mark.long
def test_targets(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "targets", "--rounds", "1", "--scale", "0.02", "--peer", "jetstream", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == _document(tmp_path / "duramen-bench" / "targets.json")
    outcomes = _document(tmp_path / "duramen-bench" / "targets.json")["targets"]
    verdicts = {outcome["target"]: outcome["met"] for outcome in outcomes}
    assert len(outcomes) == 22
    assert verdicts["ready without NATS"] is not None
    assert verdicts["NATS: 1,000 publishes of 256 B in flight"] is not None
    assert verdicts["librdkafka producing 100 B"] is None
    for outcome in outcomes:
        assert outcome["met"] is None or outcome["measured"]


@pytest.mark.long
def test_what_users_of_clients_do(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "clients", "--rounds", "1", "--scale", "0.01", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == _document(tmp_path / "duramen-bench" / "clients.json")
    outcomes = _document(tmp_path / "duramen-bench" / "clients.json")["targets"]
    assert len(outcomes) == 2 * 2 * 3 + 1 + 2 + 3 + 1 + 3
    assert all(outcome["met"] is None for outcome in outcomes)
    assert sum("no --peer kafka" in outcome["short"] for outcome in outcomes) == len(outcomes) - 1


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("arguments", "targets"),
    [
        pytest.param(["starting", "--scale", "0.01", "--rounds", "1"], 11, marks=pytest.mark.long),
        (["crowded", "--scale", "0.01", "--rounds", "1"], 4),
        (["slow-disk", "--scale", "0.01", "--rounds", "1"], 6),
        pytest.param(["requests", "--scale", "0.01", "--rounds", "1"], 7, marks=pytest.mark.long),
        pytest.param(["compaction", "--scale", "1.5", "--rounds", "1"], 1, marks=pytest.mark.long),
        pytest.param(["cold-reads", "--scale", "0.05", "--rounds", "1"], 2, marks=pytest.mark.long),
        pytest.param(["failover", "--rounds", "1"], 4, marks=pytest.mark.long),
        pytest.param(["topology", "--scale", "0.02", "--rounds", "1"], 6, marks=pytest.mark.long),
        pytest.param(["growing", "--scale", "0.001", "--rounds", "1"], 4, marks=pytest.mark.long),
        pytest.param(["partitions", "--scale", "0.01", "--rounds", "1"], 8, marks=pytest.mark.long),
        pytest.param(["pauses", "--duration", "0.2"], 3, marks=pytest.mark.long),
    ],
)
def test_what_is_measured_of_the_storage(tmp_path: Path, arguments: list[str], targets: int) -> None:
    ran = _bench(tmp_path, *arguments, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    written = _document(tmp_path / "duramen-bench" / f"{arguments[0]}.json")
    assert json.loads(ran.stdout) == written
    outcomes = written["targets"]
    assert len(outcomes) == targets
    assert all(outcome["measured"] for outcome in outcomes if outcome["met"] is not None)
    assert any(outcome["met"] is not None for outcome in outcomes)
    assert sorted(path.name for path in (tmp_path / "duramen-bench").iterdir()) == [f"{arguments[0]}.json"]


@pytest.mark.variants(3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["latency", "--size", "much"], "not a size"),
        (["latency", "--size", "2MB"], "1 MB"),
        (["latency", "--rate", "0"], "--rate"),
        (["throughput", "--messages", "0"], "--messages"),
        (["latency", "--output", "/proc/x"], "--output"),
        (["latency", "--door", "http"], "--door"),
        (["targets", "--rounds", "0"], "--rounds"),
        (["requests", "--klite", "/nowhere"], "--klite"),
        (["all", "--peer", "pulsar"], "--peer"),
    ],
)
def test_wrong_usage_is_said_in_a_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    ran = _bench(tmp_path, *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_kafka_without_java_or_maven_says_so(tmp_path: Path) -> None:
    nothing = tmp_path / "empty"
    nothing.mkdir()
    ran = _bench(tmp_path, "latency", "--peer", "kafka", PATH=str(nothing), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path))
    assert ran.returncode == 1
    assert "Java" in ran.stderr or "Maven" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.long
def test_keyed(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "keyed", "--quick")
    assert ran.returncode == 0, ran.stderr
    document = _document(tmp_path / "duramen-bench" / "keyed.json")
    figures, targets = document["figures"], document["targets"]
    assert len(targets) == 15
    assert all(target["measured"] for target in targets if target["met"] is not None)
    assert any("Python client" in target["target"] for target in targets)
    assert ("native" in {figure["kernel"] for figure in figures}) == native.is_installed()
    assert all(figure["updating"] > 0 for figure in figures)


@pytest.mark.long
def test_keyed_with_many_keys(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "keyed", "--quick", "--part", "files", "--part", "node", "--part", "week")
    assert ran.returncode == 0, ran.stderr
    document = _document(tmp_path / "duramen-bench" / "keyed.json")
    targets = [target["target"] for target in document["targets"]]
    assert len(targets) == 4 + 7 + 5
    assert "updates/s of a node with 20,000 keys" in targets
    assert [target["short"] for target in document["targets"] if not target["measured"]] == ["no --peer kafka"]
    assert next(target for target in document["targets"] if target["target"].startswith("bytes sent"))["met"]


@pytest.mark.long
def test_inventory(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "inventory", "--topics", "20000")
    assert ran.returncode == 0, ran.stderr
    document = _document(tmp_path / "duramen-bench" / "inventory.json")
    assert document["settings"]["topics"] == 20_000
    assert all(target["measured"] for target in document["targets"])


@pytest.mark.long
def test_curves_of_topics(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "inventory", "--part", "curves", "--topics", "20000")
    assert ran.returncode == 0, ran.stderr
    targets = _document(tmp_path / "duramen-bench" / "inventory.json")["targets"]
    assert [target["target"] for target in targets] == [
        f"Duramen with {count} topics" for count in ("10,000", "20,000")
    ]
    assert "Duramen" in (tmp_path / "duramen-bench" / "inventory.svg").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("part", "count"), [("node", 14), ("batches", 5)])
def test_queues(tmp_path: Path, part: str, count: int) -> None:
    ran = _bench(tmp_path, "queues", "--quick", "--part", part)
    assert ran.returncode == 0, ran.stderr
    targets = _document(tmp_path / "duramen-bench" / "queues.json")["targets"]
    assert len(targets) == count
    assert all(target["measured"] for target in targets)


@pytest.mark.long
@pytest.mark.skipif(not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")), reason="PostgreSQL is not installed")
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="Redis is not installed")
def test_queues_beside_peers() -> None:
    # PostgreSQL's user cannot pass through the directories that tests have.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        ran = _bench(Path(directory), "queues", "--quick", "--part", "rows", "--peer", "postgres", "--peer", "redis")
        assert ran.returncode == 0, ran.stderr
        targets = _document(Path(directory) / "duramen-bench" / "queues.json")["targets"]
    assert [target["target"].removeprefix("the same, ") for target in targets[1:]] == [
        "duramen", "duramen, a client a task", "postgres", "redis",
    ]  # fmt: skip
    assert targets[0]["measured"]


@pytest.mark.long
@pytest.mark.parametrize(("peer", "package"), [("redis", "redis-server")])
def test_a_peer_that_is_not_installed_is_named(tmp_path: Path, peer: str, package: str) -> None:
    ran = _bench(tmp_path, "queues", "--quick", "--part", "rows", "--peer", peer, PATH=str(tmp_path))
    assert ran.returncode == 1
    assert package in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.long
def test_native(tmp_path: Path) -> None:
    ran = _bench(tmp_path, "native", "--rounds", "1", "--scale", "0.01")
    assert ran.returncode == 0, ran.stderr
    document = _document(tmp_path / "duramen-bench" / "native.json")
    assert document["settings"] == {"rounds": 1, "rows": 4000}
    figures = document["million_rows_s"]
    assert len(figures) == 9
    assert all(figure["twin"] > 0 for figure in figures)
    assert all((figure["native"] or 0) > 0 for figure in figures) == native.is_installed()
