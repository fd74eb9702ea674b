"""NATS publishers above a quota of their rate: acknowledged late, then refused, and never more stored than allowed."""

import json
import random
import re
from collections.abc import Callable

import pytest
from tests.service.inventory import ACCOUNT, InventoryTopics

from duramen.doors.nats.namespaces import NamespaceCapture
from duramen.inventory.directory import UpdateNamespace
from duramen.service.admission import Service

BOUND = 1_000
LONGEST_MS = 2_000
BURST_MS = 12_000  # all windows but one, and as long as an acknowledgement is delayed


class Publisher:
    """Sends messages to topics of acme/dev, and hears how each ends."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryTopics(seed)
        for name in "ab":
            self.node.create(f"acme/dev/{name}")
        inventory = self.node.inventory
        acme, dev = inventory.tenant(ACCOUNT, "acme"), inventory.namespace(ACCOUNT, "acme", "dev")
        self.node.do(inventory.change, UpdateNamespace(dev.id, acme.id, "dev", None, ("devices.>",)))
        broker = self.node.hand.broker
        self.writes: list[bytes] = []
        self.capture = NamespaceCapture(
            broker, Service(broker), limit_bytes=1 << 20, soon=self._soon, send=self.writes.append
        )
        self.capture.bind(inventory.bound(ACCOUNT))
        self.count = 0
        self.sent: dict[bytes, int] = {}
        self.delays: list[int] = []
        self.errors: list[int] = []

    def _soon(self, action: Callable[[], None]) -> None:
        self.node.hand.worker.soon(action)

    def send(self, size: int, *, asks: bool = True) -> None:
        self.count += 1
        reply = b"r%d" % self.count if asks else None
        subject = b"devices." + self.chance.choice((b"a", b"b"))
        if reply is not None:
            self.sent[reply] = self.node.hand.clock.monotonic_ms()
        self.capture.take([(subject, reply, None, bytes(size))])
        self.pass_time(0)

    def pass_time(self, ms: int) -> None:
        self.node.hand.advance(ms)
        for reply, answer in re.findall(rb"PUB (r\d+) \d+\r\n(.*?)\r\n", b"".join(self.writes)):
            began_ms, said = self.sent.pop(reply), json.loads(answer)
            if "error" in said:
                self.errors.append(said["error"]["err_code"])
            else:
                self.delays.append(self.node.hand.clock.monotonic_ms() - began_ms)
        self.writes.clear()

    def stored(self) -> int:
        return sum(len(value or b"") for name in "ab" for value in self.node.values(f"acme/dev/{name}"))


@pytest.mark.parametrize("seed", range(3))
def test_no_more_is_stored_than_the_rate_allows_and_not_much_less(seed: int) -> None:
    publisher = Publisher(seed)
    publisher.node.set("acme", producer_byte_rate=BOUND)
    duration_ms = 0
    for _ in range(300):
        publisher.send(publisher.chance.randrange(400, 1_000), asks=publisher.chance.random() < 0.8)
        pause_ms = publisher.chance.choice((50, 100, 300))
        publisher.pass_time(pause_ms)
        duration_ms += pause_ms
    for _ in range(10):
        publisher.pass_time(LONGEST_MS // 10)
    assert publisher.capture.idle
    assert not publisher.sent
    assert max(publisher.delays) <= LONGEST_MS + 300
    assert set(publisher.errors) == {10167}
    assert 0.7 * BOUND * duration_ms / 1000 < publisher.stored() < BOUND * (duration_ms + BURST_MS) / 1000 + 1_000


def test_acknowledgements_come_late_before_messages_are_refused() -> None:
    publisher = Publisher()
    publisher.node.set("acme/dev/a", producer_byte_rate=1 << 40)
    publisher.node.set("acme", producer_byte_rate=BOUND)
    for _ in range(11):
        publisher.send(1_000)
    assert len(publisher.delays) in (9, 10)  # at once
    assert not publisher.errors
    publisher.pass_time(LONGEST_MS)
    assert len(publisher.delays) == 11
    assert publisher.delays[-1] > 500
    for _ in range(5):
        publisher.send(1_000)
    assert publisher.errors
    publisher.pass_time(30_000)
    publisher.send(1_000)
    assert not publisher.sent


def test_publishers_without_a_quota_are_not_delayed() -> None:
    publisher = Publisher()
    for _ in range(50):
        publisher.send(10_000)
    assert publisher.delays == [0] * 50
