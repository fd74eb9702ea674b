"""A partition's floors, by name: what below its high watermark is needed still, and what it is kept from."""

from typing import Any

import pytest
from tests.doors.http.applied import World

from duramen.cli.streams.description import print_stream
from duramen.codec.batch import TRANSACTIONAL, BatchInput, check, encode


def test_the_floors_of_a_partition_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    config: dict[str, Any] = {"table.format": "delta", "table.location": "/lake", "table.kept.offsets": "0:2"}
    world.manual.create("s", **config)
    world.manual.produce("s", b"a", b"b", b"c")
    new = [BatchInput(1, None, b"d")]
    batch = encode(new, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    store = world.manual.broker.store
    store.append(world.manual.broker.streams.get("s").partitions[0].log, batch, check(batch), store.node_epoch, None)
    world.manual.settle()
    status, shown = world.ask("GET", "/v1/streams/s")
    assert status == 200
    floors = {floor["name"]: floor for floor in shown["partitions"][0]["floors"]}
    assert floors["table"] == {"name": "table", "offset": 2, "holds": ["retention"], "multiple": 2}
    transaction = {"name": "open transaction", "offset": 3, "holds": ["compaction"], "multiple": None}
    assert floors["open transaction"] == transaction
    print_stream({**shown, "groups": [], "groups_missing": [], "nats_gaps": None}, in_cluster=False)
    printed = capsys.readouterr().out
    assert "partition 0, offset 2: table, holds back retention, up to 2 times its limits" in printed
    assert "partition 0, offset 3: open transaction, holds back compaction\n" in printed


def test_where_nothing_is_held_back_there_are_none() -> None:
    world = World()
    status, shown = world.ask("GET", "/v1/streams/there")
    assert (status, shown["partitions"][0]["floors"]) == (200, [])
