"""The publisher of the demo: whatever becomes of its connection, every flight is stored once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from nats.aio.client import Client

from duramen.client.http import HttpNode, path_of
from duramen.demo.flights import DemoFlight
from duramen.demo.publisher import Publisher
from duramen.node.process import NodeProcess

COUNT = 1000
WHERE_IT_BREAKS = 250


def test_a_connection_that_is_lost_before_the_client_notices(
    new_node: Callable[..., NodeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = new_node({"nats.server": "embedded"})
    node.start()
    server = HttpNode(node.http)
    server.post("/v1/streams", {"name": "flights", "subjects": ["flights.>"], "partitions": 1})
    publisher = Publisher([DemoFlight(f"flights.{number}", b"%d" % number) for number in range(COUNT)], 100)
    publisher.publish_the_rest()
    publish, calls = Client.publish, 0

    async def breaking(client: Any, *args: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == WHERE_IT_BREAKS:
            # Its task that writes has found the connection broken, and the one that reads has not.
            client._flusher_task.cancel()
            await asyncio.wait([client._flusher_task])
            while not client._flush_queue.empty():
                client._flush_queue.get_nowait()
            client._transport._io_writer.transport.abort()
            await publish(client, *args, **options)
            pytest.fail("it was written to a connection that is lost")
        await publish(client, *args, **options)

    monkeypatch.setattr(Client, "publish", breaking)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(publisher.run(node.nats))
    assert publisher.acknowledged == COUNT
    assert sorted(publisher.offsets) == list(range(COUNT))
    (partition,) = server.get(path_of("streams", "flights"))["partitions"]
    assert partition["end_offset"] == COUNT
