"""Queues of a cluster of three real nodes: any of them takes a request, and a leader that is killed loses nothing."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.clients import until

from duramen.base.errors import DuramenError, QueueHistoryRewritten
from duramen.client.api.client import Client, connect
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
QUEUES = [f"user-{number}" for number in range(12)]


def patiently(client: Client, queue: str) -> list[str]:
    """What is in a queue, once somebody leads its shard."""
    found = list[str]()

    def read() -> bool:
        try:
            found[:] = [entry.text for entry in client.queues("mail").retrieve(queue).entries]
        except DuramenError:
            return False
        return True

    until(read, WAIT_S)
    return found


def test_any_node_takes_requests_and_a_leader_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        clients[0].spaces.create("mail", shards=3)
        every = [client.queues("mail") for client in clients]
        until(lambda: not any(patiently(client, queue) for client in clients for queue in QUEUES[:3]), WAIT_S)
        waiting = list[Any]()
        poll = threading.Thread(
            target=lambda: waiting.append(every[0].retrieve_many(dict.fromkeys(QUEUES, "end"), wait_s=WAIT_S))
        )
        poll.start()
        positions = {queue: every[1].enqueue(queue, ["one", "two", "three"]) for queue in QUEUES}
        poll.join()
        assert any(page.entries for page in waiting[0].values())
        every[2].enqueue_many([(queue, "four") for queue in QUEUES])
        for queues in every:
            found = queues.retrieve_many(dict.fromkeys(QUEUES, "start"), limit=1000)
            texts = [
                [entry.text for entry in page.entries] for page in found.values() if not isinstance(page, Exception)
            ]
            assert texts == [["one", "two", "three", "four"]] * len(QUEUES)
        for number, queue in enumerate(QUEUES):
            first, second, third = positions[queue]
            every[number % 3].edit(queue, [(first, "1")])
            every[(number + 1) % 3].delete(queue, [second])
            every[(number + 2) % 3].replace(queue, third, ["3"], by="Eve")
        killed = nodes.nodes[2]
        killed.kill()
        for queue in QUEUES:
            assert patiently(clients[0], queue) == ["1", "3"]
            epoch, _, offset = positions[queue][2].partition(".")
            with pytest.raises(QueueHistoryRewritten) as rewritten:
                every[2].retrieve(queue, f"{epoch}.{int(offset) + 1}")
            assert rewritten.value.by == "Eve"
        for client in clients:
            client.close()
