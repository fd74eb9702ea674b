"""Queues of a node that is killed with -9 again and again while clients write, edit, delete and take back."""

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import duramen
from duramen.errors import DuramenError, QueueEntryGone, QueueHistoryRewritten, QueueVersionStale
from duramen.node.process import NodeProcess

SPACE = "mail"
ROUNDS = 4
CLIENTS = 3
QUEUES = 40
STEPS_A_ROUND = 25


class Writer(threading.Thread):
    """Owns some queues, of which it alone changes entries. `expected` are those whose last operation was answered."""

    def __init__(self, server: Callable[[], str], number: int, working: threading.Event) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._chance = Random(number)
        self._names = [f"queue-{number}-{one}" for one in range(QUEUES)]
        self._working = working
        self.left = 0
        self.idle = threading.Event()
        self.over = False
        self.written = 0
        self.expected: dict[str, list[tuple[str, str]]] = {name: [] for name in self._names}
        self.maybe: dict[str, set[str]] = {name: set() for name in self._names}  # values that may be there or not
        self.unsure: set[str] = set()  # queues with an operation of which nobody knows whether it was done

    def run(self) -> None:
        while not self.over:
            self._working.wait()
            try:
                with duramen.connect(self._server()) as client:
                    self._work(client.queues(SPACE))
            except DuramenError:
                continue  # the node is down

    def _work(self, queues: duramen.Queues) -> None:
        while self._working.is_set() and not self.over:
            name = self._chance.choice(self._names)
            if name not in self.unsure:
                self._step(queues, name)
                self.left -= 1
                if self.left <= 0:
                    self.idle.set()

    def _value(self) -> str:
        self.written += 1
        return f"value {self.written}"

    def _step(self, queues: duramen.Queues, name: str) -> None:
        there, do = self.expected[name], self._chance.random()
        self.unsure.add(name)  # until it is answered
        if do < 0.6 or not there:
            values = [self._value() for _ in range(self._chance.randrange(1, 6))]
            self.maybe[name] = set(values)
            there += list(zip(queues.enqueue(name, values), values, strict=True))
        elif do < 0.8:
            place, value = self._chance.randrange(len(there)), self._value()
            self.maybe[name] = {value}
            queues.edit(name, [(there[place][0], value)])
            there[place] = there[place][0], value
        elif do < 0.9:
            place = self._chance.randrange(len(there))
            queues.delete(name, [there[place][0]])
            del there[place]
        else:
            place, value = self._chance.randrange(len(there)), self._value()
            self.maybe[name] = {value}
            positions = queues.replace(name, there[place][0], [value])
            there[place:] = list(zip(positions, [value], strict=True))
        self.unsure.discard(name)

    def check(self, queues: duramen.Queues) -> None:
        """What was answered is there, in its order, and nothing else but what may be there."""
        for name in self._names:
            found = [(entry.position, entry.text) for entry in queues.read(name)]
            if name not in self.unsure:
                assert found == self.expected[name]
                continue
            known = {text for _, text in self.expected[name]} | self.maybe[name]
            assert {text for _, text in found} <= known
            assert found == sorted(found, key=lambda one: int(one[0].partition(".")[2]))
            self.expected[name] = found
        self.unsure.clear()


@pytest.mark.long
def test_nothing_acknowledged_is_lost_however_often_the_node_is_killed(tmp_path: Path) -> None:
    working = threading.Event()
    with NodeProcess(tmp_path / "data", {"segment.bytes": "1MiB"}) as node:
        with duramen.connect(node.http) as client:
            client.spaces.create(SPACE, shards=3)
        writers = [Writer(lambda: node.http, number, working) for number in range(CLIENTS)]
        for writer in writers:
            writer.start()
        for _ in range(ROUNDS):
            for writer in writers:
                writer.left = STEPS_A_ROUND
                writer.idle.clear()
            working.set()
            for writer in writers:
                assert writer.idle.wait(60)
            node.kill()
            working.clear()
            node.start()
            with duramen.connect(node.http) as client:
                for writer in writers:
                    writer.check(client.queues(SPACE))
        for writer in writers:
            writer.over = True
        working.set()
        for writer in writers:
            writer.join(30)
    assert sum(writer.written for writer in writers) > ROUNDS * CLIENTS * STEPS_A_ROUND // 2


@pytest.mark.long
def test_an_emptied_queue_and_a_position_stay_what_they_are_over_a_kill(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with duramen.connect(node.http) as client:
            client.spaces.create(SPACE, shards=2)
            queues = client.queues(SPACE)
            first, second, third = queues.enqueue("ann", ["one", "two", "three"])
            queues.edit("ann", [(first, "1")])
            queues.delete("ann", [second])
            queues.replace("ann", third, ["3"], by="Eve")
        node.kill()
        node.start()
        with duramen.connect(node.http) as client:
            queues = client.queues(SPACE)
            assert [entry.text for entry in queues.read("ann")] == ["1", "3"]
            with pytest.raises(QueueEntryGone):
                queues.delete("ann", [second])
            with pytest.raises(QueueHistoryRewritten) as rewritten:
                queues.edit("ann", [(third, "x")])
            assert (rewritten.value.start, rewritten.value.by) == (third, "Eve")
            with pytest.raises(QueueVersionStale):
                queues.edit("ann", [(first, "x", 0)])


class Worker(threading.Thread):
    """Leases what there is and acknowledges it. `done` are entries whose acknowledgement was answered."""

    def __init__(self, server: Callable[[], str], names: list[str]) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._names = names
        self.over = False
        self.done: list[str] = []

    def run(self) -> None:
        while not self.over:
            try:
                with duramen.connect(self._server()) as client:
                    self._work(client.queues(SPACE))
            except DuramenError:
                continue  # the node is down, or a lease is over

    def _work(self, queues: duramen.Queues) -> None:
        while not self.over:
            leased = queues.lease(self._names, 5, lease_s=1, wait_s=0.2)
            queues.ack(leased)
            self.done += [entry.text for entry in leased]


@pytest.mark.long
def test_what_workers_acknowledged_is_gone_and_the_rest_is_there_over_kills(tmp_path: Path) -> None:
    names = [f"queue-{number}" for number in range(10)]
    put: set[str] = set()
    with NodeProcess(tmp_path / "data", {"segment.bytes": "1MiB"}) as node:
        with duramen.connect(node.http) as client:
            client.spaces.create(SPACE, shards=3)
        workers = [Worker(lambda: node.http, names) for _ in range(2)]
        for worker in workers:
            worker.start()
        for number in range(ROUNDS):
            with duramen.connect(node.http) as client:
                for name in names:
                    values = [f"{name} {number} {one}" for one in range(10)]
                    client.queues(SPACE).enqueue(name, values, request_id=f"{name} {number}")
                    client.queues(SPACE).enqueue(name, values, request_id=f"{name} {number}")
                    put.update(values)
            node.kill()
            node.start()
        with duramen.connect(node.http) as client:
            queues = client.queues(SPACE)
            while any(queues.stats(name).entries for name in names):
                queues.lease(names, 1, lease_s=0.001, wait_s=0.2)  # disturbs the workers
        for worker in workers:
            worker.over = True
        for worker in workers:
            worker.join(30)
        done = [value for worker in workers for value in worker.done]
        assert set(done) <= put
        node.kill()
        node.start()
        with duramen.connect(node.http) as client:
            assert all(not client.queues(SPACE).retrieve(name).entries for name in names)
