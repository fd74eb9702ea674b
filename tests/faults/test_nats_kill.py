"""Kill -9 of the broker under publishers of nats-py: what was acknowledged is there, and nothing is there twice."""

import asyncio
import json
import random
from collections.abc import Callable

import nats
import pytest
from nats.aio.client import Client
from tests.doors.nats.conftest import Api, kafka_records, run

from duramen.node.process import NodeProcess

_KILLS = 5
_PUBLISHERS = 20
_TIMEOUT_S = 2.0

Place = tuple[str, int, int]
"""Stream, partition and offset."""


async def _publish(client: Client, stream: str, id_: str) -> Place:
    """Publish once: to one stream as JetStream's users do, to the other as a request."""
    headers, payload = {"Nats-Msg-Id": id_}, id_.encode()
    if stream == "one":
        ack = await client.jetstream().publish("one.x", payload, timeout=_TIMEOUT_S, headers=headers)
        return stream, 0, ack.seq - 1
    subject = f"many.{len(id_) % 3}.{id_[-1]}"
    answer = json.loads((await client.request(subject, payload, timeout=_TIMEOUT_S, headers=headers)).data)
    return stream, answer["partition"], answer["offset"]


class _Publishers:
    """Publish until it is acknowledged, always with the same id, then the next one."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, Place] = {}
        self.repeated = 0
        self.going_on = True
        self._wanted = 0
        self._reached = asyncio.Event()

    async def reach(self, more: int) -> None:
        """Wait for so many more acknowledgements."""
        self._wanted = len(self.acknowledged) + more
        self._reached.clear()
        await self._reached.wait()

    async def publish(self, client: Client, stream: str, number: int) -> None:
        count = 0
        while self.going_on:
            id_ = f"{stream}-{number}-{count}"
            try:
                place = await _publish(client, stream, id_)
            except (nats.errors.Error, ConnectionError):
                self.repeated += 1
                await asyncio.sleep(0.02)
                continue
            self.acknowledged[id_.encode()] = place
            count += 1
            if len(self.acknowledged) >= self._wanted:
                self._reached.set()


@pytest.mark.long
def test_acknowledged_means_stored_and_an_id_is_stored_once(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"nats.server": "embedded", "wal.file.bytes": "1MiB", "wal.max.bytes": "8MiB"}).start()
    api = Api(node)
    api.create("one", "one.>", config={"segment.bytes": 100_000})
    api.create("many", "many.>", partitions=3)
    publishers = _Publishers()
    rng = random.Random(3)

    async def test(client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(_PUBLISHERS):
                for stream in ("one", "many"):
                    group.create_task(publishers.publish(client, stream, number))
            for _ in range(_KILLS):
                await publishers.reach(rng.randrange(500, 1500))
                node.kill()
                await asyncio.to_thread(node.restart)
            await publishers.reach(500)
            publishers.going_on = False

    run(test, node.nats, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
    there: dict[Place, bytes | str | None] = {}
    for stream in ("one", "many"):
        for message in kafka_records(node, stream, api.ends(stream)):
            there[(stream, message.partition() or 0, message.offset() or 0)] = message.value()
    assert publishers.repeated > 0
    for id_, place in publishers.acknowledged.items():
        assert there[place] == id_
    assert len(set(there.values())) == len(there), "something is there twice"
    assert api.gaps("one")["count"] == _KILLS
    assert "Traceback" not in node.log_path.read_text()
