"""Several nodes that all hear messages for topics of the inventory: the leader of the topic takes each, one answers."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.coordinators.inventory.node import ACCOUNT
from tests.coordinators.inventory.several import SeveralInventories
from tests.doors.nats.capturing import message
from tests.doors.nats.test_led_partitions import sent

from duramen.codec.batch import batches, records
from duramen.codec.nats import Message
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES
from duramen.doors.nats.led_partitions import LedPartitions
from duramen.doors.nats.namespaces import NamespaceCapture
from duramen.inventory.directory import UpdateNamespace
from duramen.service.light_topics import LightTopic
from duramen.sim.broker import CallbackResult

QUEUE_SHARDS = 2


class NamespaceEar:
    """What the NATS door of a node has for namespaces but its connection."""

    def __init__(self, several: SeveralInventories, node_id: int) -> None:
        hand = several.hands[node_id]
        self.writes: list[bytes] = []
        self.late: list[Callable[[], None]] | None = None
        """What waits for a server that takes its time."""

        self.capture = NamespaceCapture(
            hand.broker, several.services[node_id], limit_bytes=1 << 20, soon=hand.worker.soon, send=self.writes.append
        )
        self.leading = LedPartitions(
            hand.broker,
            self.capture,
            listened_ms=1,
            report=print,
            follow=lambda _: None,
            ready=self._ready,
            records_gaps=False,
        )
        self.leading.start()
        self.capture.bind(several.read(node_id, lambda inventory: inventory.bound(ACCOUNT)))
        self.leading.bound(hand.broker.streams.get(INVENTORY_QUEUES))
        self.leading.listening()

    def _ready(self, action: Callable[[], None]) -> None:
        if self.late is None:
            action()
        else:
            self.late.append(action)


class Place:
    """Three nodes; acme/dev is bound to a.> and has some topics."""

    def __init__(self, *topics: str) -> None:
        self.several = SeveralInventories()
        self.several.create(1, "acme/dev", *topics)
        self.bind("acme/dev", "a.>")
        self.ears = {node: NamespaceEar(self.several, node) for node in self.several.hands}
        self.several.advance(1000)

    def bind(self, path: str, *subjects: str) -> None:
        namespace = self.several.read(1, lambda inventory: inventory.namespace(ACCOUNT, *path.split("/")))
        command = UpdateNamespace(namespace.id, namespace.tenant, None, None, subjects)
        self.several.do(1, lambda inventory: inventory.change, command)

    def publish(self, *messages: Message) -> list[tuple[str, dict[str, Any]]]:
        for ear in self.ears.values():
            ear.capture.take(messages)
        return self.answers()

    def answers(self) -> list[tuple[str, dict[str, Any]]]:
        for _ in range(20):
            self.several.advance(100)
        return [one for ear in self.ears.values() for one in sent(ear.writes)]

    def topic(self, name: str) -> tuple[int, LightTopic]:
        """The topic at its leader."""
        for node in sorted(set(self.several.hands) - self.several.cut):
            service = self.several.services[node]
            found: CallbackResult[Any] = CallbackResult()
            service.resolver.resolve([name], found)
            self.several.wait(found)
            light = found.value.get(name)
            if isinstance(light, LightTopic) and light.partition.leads:
                return node, light
        raise AssertionError(f"nobody leads {name}")

    def values(self, name: str) -> list[bytes]:
        _, light = self.topic(name)
        found = light.source(-1).read(0, 1 << 20)
        data = found.made or b""
        return [one.value or b"" for at, head in batches(data) for one in records(data[at : at + head.size])]

    def lead(self, node: int) -> None:
        for shard in range(QUEUE_SHARDS):
            self.several.elect(self.several.place(INVENTORY_QUEUES, shard), node)
        self.several.advance(1000)


def test_the_leader_of_the_topic_alone_takes_a_message() -> None:
    names = [f"t{number}" for number in range(8)]
    place = Place(*names)
    answers = place.publish(*(message(f"a.{name}", name.encode(), name) for name in names))
    assert sorted((reply, ack["stream"]) for reply, ack in answers) == [(name, f"acme.dev.{name}") for name in names]
    assert [place.values(f"acme.dev.{name}") for name in names] == [[name.encode()] for name in names]
    assert {place.topic(f"acme.dev.{name}")[0] for name in names} == {1, 2}  # who lead the shards
    assert all(ear.capture.idle for ear in place.ears.values())


def test_messages_of_a_topic_stay_in_their_order() -> None:
    place = Place("x")
    for number in range(20):
        for ear in place.ears.values():
            ear.capture.take([message("a.x", b"%d" % number, None)])
        if number % 7 == 0:
            place.several.settle()
    place.answers()
    assert place.values("acme.dev.x") == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    "refused",
    [
        message("a.nothing", b"1", "r"),
        message("a.x", b"1", "r", {"Nats-TTL": "1"}),
        message("a.x", b"1", "r", {"Nats-Expected-Stream": "other"}),
        message("a.x", bytes(2 << 20), "r"),
    ],
)  # fmt: skip
def test_one_node_says_why_a_message_is_refused(refused: Message) -> None:
    place = Place("x")
    ((reply, answer),) = place.publish(refused)
    assert (reply, "error" in answer) == ("r", True)
    assert all(ear.capture.idle for ear in place.ears.values())


@pytest.mark.parametrize("seed", range(2))
def test_every_message_is_stored_once_over_leader_changes_and_renames(seed: int) -> None:
    chance, place, path = random.Random(seed), Place("x"), "x"
    stored: list[bytes] = []
    for number in range(12):
        if chance.random() < 0.3:
            place.lead(chance.randrange(1, 4))
        if chance.random() < 0.2:
            place.several.move(chance.randrange(1, 4), f"acme/dev/{path}", f"acme/dev/x{number}")
            path = f"x{number}"
        value = b"%d" % number
        answers = place.publish(message(f"a.{path}", value, "r"))
        assert [(reply, "error" in ack) for reply, ack in answers] == [("r", False)]
        stored.append(value)
    assert place.values(f"acme.dev.{path}") == stored


def test_what_was_sent_before_a_node_led_is_not_taken_by_it() -> None:
    place = Place("x")
    late: list[Callable[[], None]] = []
    place.ears[3].late = late
    place.lead(3)
    early = place.publish(message("a.x", b"early", "r"))
    assert [(reply, ack["error"]["err_code"]) for reply, ack in early] == [("r", 10008)]
    for action in late:
        action()
    ((_, ack),) = place.publish(message("a.x", b"late", "r"))
    assert "error" not in ack
    assert place.values("acme.dev.x") == [b"late"]


def test_a_leader_that_is_cut_off_acknowledges_nothing() -> None:
    place = Place("x")
    leader, _ = place.topic("acme.dev.x")
    place.several.cut.add(leader)
    place.ears[leader].capture.take([message("a.x", b"lost", "r")])
    assert not place.answers()
    place.several.fence(leader)
    place.several.advance(1000)
    answers = place.publish(message("a.x", b"kept", "q"))
    assert [reply for reply, ack in answers if "error" not in ack] == ["q"]
    assert place.values("acme.dev.x") == [b"kept"]
