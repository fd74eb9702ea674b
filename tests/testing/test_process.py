"""`duramen.testing.node`: a real node that leaves nothing behind."""

import asyncio
import tempfile
from pathlib import Path

import nats
import pytest

import duramen
from duramen import errors


def test_it_outlives_its_crash_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with duramen.testing.node({"num.partitions": 2}) as node:
        server = node.server
        with duramen.connect(server) as client:
            assert len(client.streams.create("s").partitions) == 2
            client.produce("s", ["a"])
            node.kill()
            node.restart()
            assert node.server == server
            assert [record.text for batch in client.consume("s") for record in batch] == ["a"]
            assert client.node().addresses["kafka"] == node.kafka
            node.restart()
            assert client.streams.describe("s").name == "s"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.ServerUnreachable, match="within `with"):
        _ = node.server


def test_one_that_does_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(errors.ServerUnreachable, match="num"), duramen.testing.node({"num.partitions": "some"}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_nats() -> None:
    async def publish(address: str) -> None:
        connection = await nats.connect(f"nats://{address}")
        await connection.request("orders.1", b"one", timeout=5)
        await connection.close()

    with duramen.testing.node(nats=True) as node, duramen.connect(node.server) as client:
        client.streams.create("orders", subjects=["orders.>"])
        asyncio.run(publish(node.nats))
        [batch] = client.consume("orders")
        assert [(record.text, dict(record.headers)["Nats-Subject"]) for record in batch] == [("one", b"orders.1")]
