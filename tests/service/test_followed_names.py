"""Groups of the consumer protocol on three brokers read topics of the inventory by name and by pattern."""

from typing import Any

import pytest
from tests.coordinators.inventory.several import SeveralInventories

from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.groups.consumer_values import ConsumerHeartbeatResult, HeartbeatRequest
from duramen.groups.records import partition_for
from duramen.sim.broker import CallbackResult

GROUP = "g"


@pytest.fixture
def several() -> SeveralInventories:
    several = SeveralInventories({"inventory.metadata.namespace": "acme/prod"})
    several.ensure_offsets()
    several.create(1, "acme/dev", "a", "b")
    return several


class Member:
    """A member that tells what it has been given."""

    def __init__(
        self, several: SeveralInventories, topics: list[str] | None = None, pattern: str | None = None
    ) -> None:
        self.several = several
        self.node = 1
        self.epoch = 0
        self.has: frozenset[Any] = frozenset()
        self.move(1)
        self.beat(topics, pattern)

    def move(self, node: int) -> None:
        """Another node coordinates the group."""
        self.several.elect(self.several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), node)
        self.several.advance(1000)
        self.node = node

    def beat(self, topics: list[str] | None = None, pattern: str | None = None) -> None:
        names = None if topics is None else frozenset(topics)
        owned = frozenset[Any]() if not self.epoch else self.has
        request = HeartbeatRequest(
            "m",
            self.epoch,
            None,
            None,
            "client",
            "/host",
            60_000 if not self.epoch else -1,
            names,
            pattern,
            None,
            owned,
        )
        answer: CallbackResult[ConsumerHeartbeatResult] = CallbackResult()
        self.several.broker(self.node).groups.consumer_heartbeat(GROUP, request, answer)
        self.several.wait(answer)
        self.epoch = answer.value.epoch
        if answer.value.assigned is not None:
            self.has = answer.value.assigned

    def names(self) -> set[str | None]:
        """The topics of which it has the partition."""
        topics = self.several.broker(self.node).groups.topics
        return {topics.name_of(id_) for id_, _ in self.has}


def settled(member: Member, *names: str) -> None:
    for _ in range(20):
        if member.names() == set(names):
            return
        member.several.advance(1000)
        member.beat()
    assert member.names() == set(names)


def test_a_member_gets_the_topics_that_it_names(several: SeveralInventories) -> None:
    member = Member(several, ["acme.dev.a", "acme.dev.later", "nobody.at.all"])
    settled(member, "acme.dev.a")
    several.create(2, "acme/dev", "later", "other")
    settled(member, "acme.dev.a", "acme.dev.later")
    several.move(3, "acme/dev/a", "acme/dev/moved")
    settled(member, "acme.dev.later")
    several.move(3, "acme/dev/moved", "acme/dev/a")
    settled(member, "acme.dev.a", "acme.dev.later")


@pytest.mark.parametrize(("pattern", "shown"), [(r"acme\.dev\..*", False), ("a.*", True)])
def test_a_pattern_sees_its_namespace_or_the_one_that_is_shown(
    several: SeveralInventories, pattern: str, shown: bool
) -> None:
    several.create(1, "acme/prod", "p")
    member = Member(several, pattern=pattern)
    settled(member, *(["acme.prod.p"] if shown else ["acme.dev.a", "acme.dev.b"]))
    if shown:
        several.create(2, "acme/prod", "q")
        settled(member, "acme.prod.p", "acme.prod.q")
    else:
        several.move(1, "acme/dev/a", "acme/dev/c")
        settled(member, "acme.dev.b", "acme.dev.c")


def test_the_next_coordinator_takes_nothing_away(several: SeveralInventories) -> None:
    member = Member(several, ["acme.dev.a", "acme.dev.b"])
    settled(member, "acme.dev.a", "acme.dev.b")
    epoch, has = member.epoch, member.has
    for node in (2, 3, 1):
        member.move(node)
        for _ in range(3):
            member.beat()
            several.advance(500)
        assert (member.epoch, member.has) == (epoch, has)


def test_the_shown_namespace_is_listed_as_it_is_now(several: SeveralInventories) -> None:
    names = several.services[2].light_names
    several.create(1, "acme/prod", "p")
    assert names.listed() == []  # it is asked for now
    several.advance(1000)
    assert names.listed() == ["acme.prod.p"]
    several.move(1, "acme/prod/p", "acme/prod/q")
    several.advance(2000)
    assert names.listed() == ["acme.prod.q"]
