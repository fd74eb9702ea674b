"""The queues of the broker's own spaces are topics of the inventory: the doors for queues read them only."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.service.inventory import InventoryTopics

from duramen.base.errors import RequestInvalid
from duramen.doors.queues.operations import OPERATIONS, QueueOperations
from duramen.doors.queues.types import (
    AckRequest,
    DeleteRequest,
    EditRequest,
    EnqueueRequest,
    ExtendRequest,
    LeasesRequest,
    NackRequest,
    QueueRequest,
    ReplaceRequest,
)

READS = {"retrieve", "queues", "stats", "usage"}
SENT: dict[str, Any] = {
    "enqueue": EnqueueRequest([]), "edit": EditRequest("q", []), "delete": DeleteRequest("q", []),
    "replace": ReplaceRequest("q", "start", []), "lease": LeasesRequest(["q"]), "ack": AckRequest([]),
    "nack": NackRequest([]), "extend": ExtendRequest([], 1000), "purge": QueueRequest("q"), "drop": QueueRequest("q"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*OPERATIONS, "batch"} - READS))
def test_no_operation_changes_a_queue_of_the_brokers_own(name: str) -> None:
    node = InventoryTopics()
    node.create("acme/dev/a")
    node.put("acme/dev/a", b"value")
    spaces = [stream for stream in node.hand.broker.streams if stream.internal and stream.shards]
    assert spaces
    for space in spaces:
        requests: Any = SimpleNamespace(shards=None)
        operations = QueueOperations(node.hand.broker, requests, space, set(), "")
        asked = (
            operations.enqueue_batch(bytearray()) if name == "batch" else OPERATIONS[name].run(operations, SENT[name])
        )
        with pytest.raises(RequestInvalid, match="broker's own"):
            asyncio.run(asked)  # type: ignore[arg-type]
    assert node.values("acme/dev/a") == [b"value"]
