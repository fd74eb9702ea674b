"""Behaviours: consumer groups."""

from collections.abc import Mapping
from typing import Any, Final

from tests.compat.driving import Driver, Member
from tests.compat.staging import Behaviour, Stage, record

__all__ = ["GROUPING"]

_PARTITIONS: Final = 4
_ALL: Final = frozenset(range(_PARTITIONS))


def _fill(stage: Stage, topic: str, word: str) -> list[bytes]:
    given = [(f"{word} {number}", number % _PARTITIONS) for number in range(4 * _PARTITIONS)]
    stage.driver.ask("produce", topic=topic, records=[record(value, partition=at) for value, at in given])
    return [value.encode() for value, _ in given]


def _shared(one: Member, other: Member) -> bool:
    return bool(one.holds) and bool(other.holds) and one.holds | other.holds == _ALL and not one.holds & other.holds


def _both(one: Member, other: Member) -> None:
    other.until(lambda: bool(other.holds) and other.holds != _ALL, "the partitions are not shared")
    one.until(lambda: _shared(one, other), "the partitions are not shared")


def _share(stage: Stage, options: Mapping[str, Any]) -> tuple[str, Member, Driver, Member]:
    """Two members that share a topic; what was in it before is read and committed, and not in their `records`."""
    topic, group = stage.topic(_PARTITIONS), stage.name("group")
    first = stage.driver.join(f"{group}-a", group, topic, **options)
    first.until(lambda: first.holds == _ALL, "the only member has not all partitions")
    # It has a position in every partition: librdkafka 2.0.2 goes back to the start of one that it is given again, when
    # it was taken away while the client still asked where it starts.
    first.until_read(*_fill(stage, topic, "before"))
    first.commit()
    first.records.clear()
    driver = stage.second()
    second = driver.join(f"{group}-b", group, topic, **options)
    _both(first, second)
    return topic, first, driver, second


def _join_and_leave(stage: Stage, options: Mapping[str, Any]) -> None:
    topic, first, _, second = _share(stage, options)
    given = _fill(stage, topic, "shared")
    for member in (first, second):
        wanted = [value for at, value in enumerate(given) if at % _PARTITIONS in member.holds]
        member.until_read(*wanted)
        member.commit()
    second.leave()
    first.until(lambda: first.holds == _ALL, "it did not get the partitions of the one that left")
    first.until_read(*_fill(stage, topic, "alone"))
    first.leave()
    # Nobody was given what the other had committed.
    assert len({(one.partition, one.offset) for one in first.records + second.records}) == 2 * len(given)
    assert len(first.records) + len(second.records) == 2 * len(given)


def _classic(stage: Stage) -> None:
    _join_and_leave(stage, {})


def _consumer_protocol(stage: Stage) -> None:
    _join_and_leave(stage, {"protocol": "consumer"})


def _die(stage: Stage) -> None:
    topic, first, driver, second = _share(stage, {"session_ms": 3000})
    driver.kill()
    first.until(lambda: first.holds == _ALL, "it did not get the partitions of the one that died")
    first.until_read(*_fill(stage, topic, "alone"))
    first.leave()
    assert not second.records


def _static(stage: Stage) -> None:
    topic, group = stage.topic(_PARTITIONS), stage.name("group")
    first = stage.driver.join(f"{group}-a", group, topic, instance="a", session_ms=30_000)
    first.until(lambda: first.holds == _ALL, "the only member has not all partitions")
    driver = stage.second()
    second = driver.join(f"{group}-b", group, topic, instance="b", session_ms=30_000)
    _both(first, second)
    times, had = first.times, second.holds
    driver.kill()
    again = stage.second().join(f"{group}-b", group, topic, instance="b", session_ms=30_000)
    again.until(lambda: again.holds == had, "the instance that came back has not what it had")
    again.until_read(*[value for at, value in enumerate(_fill(stage, topic, "back")) if at % _PARTITIONS in had])
    assert first.times == times, "the other member was bothered"
    again.leave()
    first.leave()


def _cooperative(stage: Stage) -> None:
    topic, first, _, second = _share(stage, {"strategy": "cooperative-sticky"})
    kept = first.holds
    assert not kept & set(first.lost), "it lost partitions that it kept"
    assert set(first.lost) == second.holds
    given = _fill(stage, topic, "shared")
    first.until_read(*[value for at, value in enumerate(given) if at % _PARTITIONS in kept])
    second.leave()
    first.until(lambda: first.holds == _ALL, "it did not get the partitions of the one that left")
    assert not kept & set(first.lost), "it lost partitions that it kept"
    first.leave()


def _offsets(stage: Stage) -> None:
    topic, group = stage.topic(_PARTITIONS), stage.name("group")
    before = _fill(stage, topic, "before")
    first = stage.driver.join(f"{group}-a", group, topic)
    first.until_read(*before)
    first.commit()
    first.leave()
    stage.restart()
    behind = _fill(stage, topic, "behind")
    second = stage.driver.join(f"{group}-b", group, topic)
    second.until_read(*behind)
    second.leave()
    assert sorted(one.value for one in second.records) == sorted(behind)


def _through_restart(stage: Stage) -> None:
    topic, group = stage.topic(_PARTITIONS), stage.name("group")
    # A session that outlasts any restart: who is thrown out reads again what it had not committed.
    member = stage.driver.join(f"{group}-a", group, topic, session_ms=60_000)
    member.until_read(*_fill(stage, topic, "before"))
    member.commit()
    stage.restart()
    member.until_read(*_fill(stage, topic, "behind"))
    member.leave()
    assert len(member.records) == len({(one.partition, one.offset) for one in member.records}) == 8 * _PARTITIONS


def _recreated_consumer(stage: Stage) -> None:
    """It read five records; the new topic of the name has three: it is given these, from the first."""
    topic, group = stage.topic(), stage.name("group")
    old = [f"old {number}" for number in range(5)]
    stage.driver.ask("produce", topic=topic, records=[record(one) for one in old])
    member = stage.driver.join(f"{group}-a", group, topic)
    member.until_read(*[one.encode() for one in old])
    new = [f"new {number}" for number in range(3)]
    stage.delete(topic)
    stage.topic(name=topic)
    stage.second().ask("produce", topic=topic, records=[record(one) for one in new])
    member.until_read(*[one.encode() for one in new])
    member.leave()
    assert [one.value.decode() for one in member.records] == old + new
    assert [one.offset for one in member.records] == [0, 1, 2, 3, 4, 0, 1, 2]


def _recreated_producer(stage: Stage) -> None:
    """A producer that knew the old topic writes to the new one, from its first offset."""
    topic = stage.topic()
    stage.driver.ask("open", producer=topic)
    stage.driver.ask("send", producer=topic, topic=topic, records=[record(f"old {at}") for at in range(5)])
    assert stage.driver.ask("flush", producer=topic) == list(range(5))
    stage.delete(topic)
    stage.topic(name=topic)
    stage.driver.ask("send", producer=topic, topic=topic, records=[record(f"new {at}") for at in range(3)])
    assert stage.driver.ask("flush", producer=topic) == list(range(3))
    stage.driver.ask("close", producer=topic)
    found = stage.driver.ask("read", topic=topic, partition=0, offset=0, count=3)
    assert [(one["offset"], one["value"]) for one in found] == [(at, f"new {at}") for at in range(3)]


GROUPING: Final = (
    Behaviour("group, joining and leaving", "members share the partitions; whoever stays gets all", _classic),
    Behaviour("group, dying", "kill -9 of a member: the others get its partitions", _die),
    Behaviour("group, static members", "an instance that comes back gets what it had, nobody rebalances", _static),
    Behaviour("group, cooperative", "who keeps partitions goes on reading them while others join", _cooperative),
    Behaviour("group, consumer protocol", "members share the partitions by KIP-848", _consumer_protocol, (68,)),
    Behaviour("group, offsets", "committed offsets are there after kill -9 of the node", _offsets),
    Behaviour("group, node restarted", "a member reads on after kill -9 of the node", _through_restart),
    Behaviour(
        "topic re-created, consumer",
        "a consumer of the old topic reads the new one from its start",
        _recreated_consumer,
    ),
    Behaviour("topic re-created, producer", "a producer of the old topic writes to the new one", _recreated_producer),
)
