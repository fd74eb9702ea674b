"""`duramen.testing.broker`: a real broker that leaves nothing behind, whatever becomes of the test."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import nats
import pytest
from tests.clients import CONFLUENT, LIBRARIES, Library, Record, until

import duramen
from duramen import errors
from duramen.client.http import HttpNode
from duramen.testing import Broker


def runs(broker: Broker) -> bool:
    return broker.running


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_clients_write_and_read(library: Library, broker: Broker, stream: str) -> None:
    library.produce(broker.bootstrap_servers, stream, [Record(b"a", b"k", (("h", b"1"),)), Record(b"b")])
    read = library.consume(broker.bootstrap_servers, stream, 1, 2)
    assert [one.value for one in read] == [b"a", b"b"]
    records = broker.records(stream)
    assert [(one.offset, one.key, one.value) for one in records] == [(0, b"k", b"a"), (1, None, b"b")]
    assert dict(records[0].headers) == {"h": b"1"}


def test_it_outlives_its_crash_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with duramen.testing.broker({"num.partitions": 2}) as broker:
        address = broker.bootstrap_servers
        with duramen.connect(broker.http_url) as client:
            assert len(client.streams.create("s").partitions) == 2
            client.produce("s", ["a", "b", "c"])
            broker.crash()
            assert not runs(broker)
            assert broker.bootstrap_servers == address
            broker.restart()
            assert runs(broker)
            assert broker.bootstrap_servers == address
            assert sorted(record.text for record in broker.records("s")) == ["a", "b", "c"]
            broker.restart()
            assert client.node().addresses["kafka"] == address
        assert broker.log.count(" recovered ") == 3
    assert not runs(broker)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.ServerUnreachable, match="within `with"):
        _ = broker.http_url


def test_where_no_batch_was_acknowledged_nobody_waits_for_ever(broker: Broker, stream: str) -> None:
    broker.crash()
    with pytest.raises(errors.ServerUnreachable, match=r"restart\(\) starts it again"):
        broker.faults.clear()
    broker.restart()
    assert broker.records(stream) == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"num.partitions": "some"}, r"num\.partitions: 'some' does not fit"),
        ({"num.partition": 3}, r"num\.partition is not a setting; did you mean num\.partitions\?"),
    ],
)
def test_wrong_settings_leave_nothing(
    settings: dict[str, object], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(errors.SettingInvalid, match=why), duramen.testing.broker(settings):
        pass
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_start_says_why(broker: Broker) -> None:
    taken = {"kafka.listen": broker.bootstrap_servers}
    with pytest.raises(errors.ServerUnreachable, match="cannot listen on"), duramen.testing.broker(taken):
        pass


def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DURAMEN_NUM_PARTITIONS", "7")
    monkeypatch.setenv("DURAMEN_NO_SUCH_SETTING", "7")
    (tmp_path / "duramen.toml").write_text("broken = = =")
    monkeypatch.chdir(tmp_path)
    with duramen.testing.broker() as broker, duramen.connect(broker.http_url) as client:
        assert len(client.streams.create("s").partitions) == 1


def test_retention_is_not_looked_at_while_tests_run(broker: Broker) -> None:
    settings = {one["name"]: one["value"] for one in HttpNode(broker.http_url).get("/v1/configs")["configs"]}
    assert settings["log.retention.check.interval.ms"] == "86400000"


def test_several_at_once_know_nothing_of_each_other(broker: Broker, stream: str) -> None:
    with duramen.testing.broker() as other:
        assert other.bootstrap_servers != broker.bootstrap_servers
        with pytest.raises(errors.StreamNotFound):
            other.records(stream)


def test_in_a_coroutine() -> None:
    async def main() -> list[str]:
        async with duramen.testing.broker() as broker:
            name = broker.create_stream("s")
            async with await duramen.aio.connect(broker.http_url) as client:
                await client.produce(name, ["a"])
            return [record.text for record in broker.records(name)]

    assert asyncio.run(main()) == ["a"]


def test_nats_only_when_asked_for(broker: Broker) -> None:
    async def publish(url: str) -> None:
        connection = await nats.connect(url, connect_timeout=60)
        await connection.request("orders.1", b"one", timeout=60)
        await connection.close()

    with pytest.raises(errors.RequestInvalid, match="make it with nats=True"):
        _ = broker.nats_url
    with duramen.testing.broker(nats=True) as with_nats:
        assert with_nats.create_stream("orders", 2, subjects=["orders.>"]) == "orders"
        asyncio.run(publish(with_nats.nats_url))
        assert [(one.text, dict(one.headers)["Nats-Subject"]) for one in with_nats.records("orders")] == [
            ("one", b"orders.1")
        ]
        with pytest.raises(errors.StreamExists):
            with_nats.create_stream("orders", 2, subjects=["orders.>"])


def test_streams(broker: Broker, stream: str) -> None:
    with pytest.raises(errors.StreamExists):
        broker.create_stream(stream)
    with pytest.raises(errors.ConfigInvalid, match=r"retention\.ms"):
        broker.create_stream(f"{stream}-2", config={"retention.ms": "soon"})
    broker.create_stream(f"{stream}-3", 3, config={"retention.ms": 1000, "preallocate": False})
    with duramen.connect(broker.http_url) as client:
        described = client.streams.describe(f"{stream}-3")
        assert len(described.partitions) == 3
        assert described.config["retention.ms"] == "1000"
    CONFLUENT.produce(
        broker.bootstrap_servers, f"{stream}-3", [Record(b"c", partition=2), Record(b"a", partition=0), Record(b"b")]
    )
    places = [(one.partition, one.offset) for one in broker.records(f"{stream}-3")]
    assert places == sorted(places)
    assert len(places) == 3


_ORPHAN = """
import duramen, os, signal
broker = duramen.testing.broker().__enter__()
print(broker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ORPHAN], capture_output=True, text=True, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)

    def gone() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text()
        return True

    until(gone)


def test_what_takes_long_to_import_is_not_imported_before_it_is_ready() -> None:
    program = "import duramen.testing.child, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {"click", "duramen.cli", "duramen.doors.http", "duramen.doors.nats.door", "rich", "starlette", "uvicorn"}
    assert slow.isdisjoint(done.stdout.split())
