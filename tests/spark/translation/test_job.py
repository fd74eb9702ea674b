"""The job over several streams: each for itself, errors of one never those of another, and what is told of them."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.spark.translation.transacting import batch
from tests.spark.translation.world import World

from duramen.base.catalogue.tables import KEPT_OFFSETS
from duramen.base.errors import SettingInvalid, StreamNotFound, TableForeign
from duramen.client import BrokerCluster, StreamAdmin
from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.declared import DeclaredTable
from duramen.spark.tables.registry import open_table
from duramen.spark.translation import task
from duramen.spark.translation.creation import open_tables
from duramen.spark.translation.job import TableJob
from duramen.spark.translation.log import SourceLog
from duramen.spark.translation.metrics import Account, render
from duramen.spark.translation.metrics_export import Exporter
from duramen.spark.translation.round import Round
from duramen.spark.translation.status import TranslationStatus, status_of
from duramen.spark.translation.streams import declared_streams
from duramen.spark.translation.table_writer import TableWriter
from duramen.spark.translation.task import TaskResult, TranslationTask


def here(tasks: Sequence[TranslationTask]) -> Sequence[TaskResult]:
    return [task.run(one) for one in tasks]


def make_job(kafka: str, found: Mapping[str, DeclaredTable], seen: list[tuple[str, Account]]) -> TableJob:
    def keeper(table: DeclaredTable) -> TableWriter:
        declaration = table.declaration
        log = SourceLog(kafka, declaration.stream, declaration.stream_id)
        round_ = Round(declaration, log, open_tables, here, 2)
        return TableWriter(log, round_, lambda: open_table(declaration), keep_ms=600_000)

    return TableJob(lambda: found, keeper, parallel=1, seen=lambda name, account: seen.append((name, account)))


@pytest.fixture
def worlds(node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path) -> list[World]:
    made = []
    for name in ("a", "b", "c"):
        StreamAdmin(cluster).create_stream(f"{stream_name}-{name}", 2)
        made.append(World(node.kafka, cluster, f"{stream_name}-{name}", tmp_path / name))
    return made


def status(node: NodeProcess, world: World) -> TranslationStatus:
    told = HttpNode(node.http).get(path_of("streams", world.stream))
    return status_of(DeclaredTable(world.declaration(), 10_000), told, world.cluster, time.time_ns() // 1_000_000)


def test_once_brings_each_to_its_end_and_one_that_fails_holds_up_none(node: NodeProcess, worlds: list[World]) -> None:
    good, foreign, gone = worlds
    for world in worlds:
        world.produce([b'{"a": 1}', b"no"] * 20)
    foreign.location.mkdir()
    (foreign.location / "diary.txt").write_text("dear")
    StreamAdmin(gone.cluster).delete_stream(gone.stream)
    seen: list[tuple[str, Account]] = []
    job = make_job(node.kafka, {one.stream: DeclaredTable(one.declaration(), 1000) for one in worlds}, seen)
    assert not job.run(once=True)
    accounts = job.accounts()
    assert (accounts[good.stream].records, accounts[good.stream].bad, accounts[good.stream].error) == (40, 20, "")
    assert accounts[foreign.stream].error.endswith(f"[{TableForeign.id}]")
    assert accounts[gone.stream].error.endswith(f"[{StreamNotFound.id}]")
    assert [accounts[one.stream].failures for one in worlds] == [0, 3, 3]
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in good.rows()] == good.expected()
    assert {name for name, _ in seen} == {one.stream for one in worlds}


@pytest.mark.long
@pytest.mark.parametrize(("fault", "id_"), [("metadata", "table-damaged"), ("feature", "table-unsupported"),
                                           ("bug", "bug"), ("bug in a task", "bug")])  # fmt: skip
def test_an_error_that_is_not_the_storage_s_has_its_own_id(
    node: NodeProcess, world: World, fault: str, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the job's lines and in `duramen table status`."""
    world.produce([b'{"a": 1}'] * 4)
    found = {world.stream: DeclaredTable(world.declaration(), 1000)}
    assert make_job(node.kafka, found, []).run(once=True)
    world.produce([b'{"a": 1}'] * 4)
    newest = max((world.location / "_delta_log").glob("*.json"))
    if fault == "metadata":
        newest.write_bytes(newest.read_bytes()[:100])
    elif fault == "feature":
        wanted = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
        newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text(json.dumps({"protocol": wanted}))
    else:
        where = "duramen.spark.translation.task.translate" if "task" in fault else "deltalake.DeltaTable.history"

        def broken(*_: object, **__: object) -> None:
            raise KeyError("nothing")

        monkeypatch.setattr(where, broken)
    job = make_job(node.kafka, found, [])
    assert not job.run(once=True)
    error = job.accounts()[world.stream].error
    assert error.endswith(f"[{id_}]")
    assert "\n" not in error
    monkeypatch.undo()
    if fault.startswith("bug"):
        assert status(node, world).error == error


@pytest.mark.long
def test_what_stops_a_table_is_in_its_status_and_its_lag_in_its_group(node: NodeProcess, worlds: list[World]) -> None:
    good, foreign, _ = worlds
    for world in (good, foreign):
        world.produce([b'{"a": 1}', b"no"] * 20)
    foreign.location.mkdir()
    (foreign.location / "diary.txt").write_text("dear")
    before = status(node, good)
    assert (before.lag_records, before.files, before.error, before.looked_ms) == (40, None, "", None)
    assert before.lag_bytes is not None
    assert before.lag_bytes > 0
    assert before.lag_seconds is not None
    make_job(node.kafka, {one.stream: DeclaredTable(one.declaration(), 1000) for one in (good, foreign)}, []).run(
        once=True
    )
    found = status(node, good)
    assert (found.lag_records, found.lag_bytes, found.lag_seconds, found.rows, found.dead_letters, found.error) == (
        0, 0, 0.0, 40, 20, "",
    )  # fmt: skip
    assert found.files
    assert found.last_commit_ms
    assert found.looked_ms
    assert status(node, foreign).error.endswith(f"[{TableForeign.id}]")
    groups = HttpNode(node.http)
    assert {
        (one["partition"], one["committed_offset"], one["lag_records"])
        for one in groups.get(path_of("groups", f"duramen-table-{good.stream}"))["offsets"]
    } == {(0, 20, 0), (1, 20, 0)}


def test_what_the_node_declares_is_what_the_job_finds(node: NodeProcess, worlds: list[World]) -> None:
    server = HttpNode(node.http)
    world, plain, _ = worlds
    config = {"table.format": "delta", "table.location": "/lake/x", "table.max.lag.ms": "2s", "table.upsert.by": "key",
              "table.partition.by": "_date,a"}  # fmt: skip
    server.patch(path_of("streams", world.stream), {"config": config})
    ((declared, told),) = declared_streams(server, [world.stream], {"s3.region": "x"}).values()
    assert told["name"] == world.stream
    assert (declared.max_lag_ms, declared.declaration.upsert, declared.declaration.partition_by) == (
        2000, True, ("_date", "a"),
    )  # fmt: skip
    assert declared.declaration.stream_id == world.stream_id
    assert declared.declaration.storage == ("/lake/x", {"s3.region": "x"})
    everything = declared_streams(server, [], {})
    assert world.stream in everything
    assert plain.stream not in everything


def test_what_a_job_has_counted_stays_when_a_table_is_declared_anew(
    node: NodeProcess, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duramen.spark.translation.job._LOOK_S", 0.0)
    found = {world.stream: DeclaredTable(world.declaration(), 1000)}
    seen: list[tuple[str, Account]] = []
    job = make_job(node.kafka, found, seen)

    def tell(name: str, account: Account) -> None:
        if account.records == 8 and not found[name].declaration.made:
            found[name] = DeclaredTable(world.declaration(made=True), 1000)
            world.produce([b'{"a": 1}'] * 4)
        if account.records == 12:
            job.stop()

    monkeypatch.setattr(job, "_seen", tell)
    world.produce([b'{"a": 1}'] * 8)
    assert job.run()
    assert job.accounts()[world.stream].records == 12


def test_metrics_are_served_to_prometheus() -> None:
    account = Account(records=3, lag_ms=1500, error="so")
    with Exporter("127.0.0.1:0", lambda: render({"s": account})) as exporter:
        server = HttpNode(f"127.0.0.1:{exporter.port}")
        text = server.text("/metrics")
        with pytest.raises(SettingInvalid, match="cannot be had"):
            Exporter(f"127.0.0.1:{exporter.port}", str)
    assert 'duramen_table_records_total{stream="s"} 3\n' in text
    assert 'duramen_table_lag_seconds{stream="s"} 1.5\n' in text
    assert 'duramen_table_failing{stream="s"} 1\n' in text
    assert "# TYPE duramen_table_records_total counter\n" in text
    with pytest.raises(SettingInvalid, match="it must be HOST:PORT"):
        Exporter("here", str)


def test_a_table_that_is_gone_is_not_begun_anew_in_silence(node: NodeProcess, world: World) -> None:
    server, path = HttpNode(node.http), path_of("streams", world.stream)
    config = {"table.format": "delta", "table.location": str(world.location), "table.decode": "json"}
    server.patch(path, {"config": config})
    world.produce([b'{"a": 1}'] * 8)
    world.to_the_end()
    server.patch(path, {"config": {KEPT_OFFSETS: "0:4,1:4"}})  # as a job does
    assert len(batch(world, tier="cold")) == 8
    shutil.rmtree(world.location)
    ((table, told),) = declared_streams(server, [world.stream], {}).values()
    gone = f"the table of {world.stream} at .* is gone; bring it back, or begin"
    for tier in ("all", "cold"):
        with pytest.raises(TableForeign, match=gone):
            batch(world, tier=tier)
    assert len(batch(world, tier="hot")) == 8
    assert "is gone" in status_of(table, told, world.cluster, 0).error
    with pytest.raises(TableForeign, match=gone):
        world.round(made=table.declaration.made)
    assert not world.location.exists()
    server.patch(path, {"config": {KEPT_OFFSETS: ""}})  # as `duramen table enable` does
    ((table, _),) = declared_streams(server, [world.stream], {}).values()
    world.to_the_end(made=table.declaration.made)
    assert len(batch(world, tier="cold")) == 8
