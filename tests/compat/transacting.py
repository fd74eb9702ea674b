"""Behaviours: transactions and readers of what is committed."""

from typing import Final

import pytest
from tests.compat.driving import Refused
from tests.compat.staging import Behaviour, Stage, record, values

__all__ = ["TRANSACTING"]

# AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit.
_APIS: Final = (24, 25, 26, 28)


def _send(stage: Stage, producer: str, topic: str, *given: str) -> None:
    stage.driver.ask("send", producer=producer, topic=topic, records=[record(one) for one in given])


def _read(stage: Stage, topic: str, count: int, *, committed: bool = True) -> list[str]:
    return values(stage.driver.ask("read", topic=topic, partition=0, offset=0, count=count, committed=committed))


def _open(stage: Stage, producer: str) -> None:
    stage.driver.ask("open", producer=producer, transactional=producer)


def _committed(stage: Stage) -> None:
    topics = [stage.topic(), stage.topic()]
    _open(stage, topics[0])
    for times in range(3):
        stage.driver.ask("begin", producer=topics[0])
        for topic in topics:
            _send(stage, topics[0], topic, f"a{times}", f"b{times}")
        stage.driver.ask("commit", producer=topics[0])
    stage.driver.ask("close", producer=topics[0])
    for topic in topics:
        assert _read(stage, topic, 6) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def _aborted(stage: Stage) -> None:
    topic = stage.topic()
    _open(stage, topic)
    for end, value in (("commit", "a"), ("abort", "b"), ("abort", "c"), ("commit", "d")):
        stage.driver.ask("begin", producer=topic)
        _send(stage, topic, topic, value)
        stage.driver.ask("flush", producer=topic)
        stage.driver.ask(end, producer=topic)
    stage.driver.ask("close", producer=topic)
    assert _read(stage, topic, 2) == ["a", "d"]
    assert _read(stage, topic, 4, committed=False) == ["a", "b", "c", "d"]


def _undecided(stage: Stage) -> None:
    """A reader that began before the end of a transaction is given nothing behind its first record."""
    topic = stage.topic()
    _open(stage, topic)
    stage.driver.ask("begin", producer=topic)
    _send(stage, topic, topic, "undecided")
    stage.driver.ask("flush", producer=topic)
    stage.driver.ask("produce", topic=topic, records=[record("plain")])
    other = stage.second()
    reading = other.begin("read", topic=topic, partition=0, offset=0, count=1, committed=True)
    assert _read(stage, topic, 2, committed=False) == ["undecided", "plain"]
    stage.driver.ask("abort", producer=topic)
    stage.driver.ask("close", producer=topic)
    assert values(other.answer(reading)) == ["plain"]


def _fenced(stage: Stage) -> None:
    topic = stage.topic()
    _open(stage, topic)
    stage.driver.ask("begin", producer=topic)
    _send(stage, topic, topic, "old")
    stage.driver.ask("flush", producer=topic)
    other = stage.second()
    other.ask("open", producer=topic, transactional=topic)
    other.ask("begin", producer=topic)
    other.ask("send", producer=topic, topic=topic, records=[record("new")])
    other.ask("commit", producer=topic)
    with pytest.raises(Refused):
        stage.driver.ask("commit", producer=topic)
    assert values(other.ask("read", topic=topic, partition=0, offset=0, count=1, committed=True)) == ["new"]
    stage.driver.ask("drop", producer=topic)


def _offsets(stage: Stage) -> None:
    topic, group = stage.topic(), stage.name("group")
    _open(stage, topic)
    for end, offset in (("commit", 5), ("abort", 9)):
        stage.driver.ask("begin", producer=topic)
        _send(stage, topic, topic, "value")
        stage.driver.ask("send_offsets", producer=topic, group=group, topic=topic, partition=0, offset=offset)
        stage.driver.ask(end, producer=topic)
    stage.driver.ask("close", producer=topic)
    assert stage.driver.ask("committed", group=group, topic=topic, partition=0) == 5


def _restarted(stage: Stage) -> None:
    topic = stage.topic()
    _open(stage, topic)
    for number in range(2):
        stage.driver.ask("begin", producer=topic)
        _send(stage, topic, topic, f"before {number}")
        stage.driver.ask("flush", producer=topic)
        stage.restart()
        _send(stage, topic, topic, f"behind {number}")
        stage.driver.ask("commit", producer=topic)
    stage.driver.ask("close", producer=topic)
    assert _read(stage, topic, 4) == [f"{when} {number}" for number in range(2) for when in ("before", "behind")]


TRANSACTING: Final = (
    Behaviour("transactions, committed", "over two topics, read with read_committed", _committed, _APIS),
    Behaviour("transactions, aborted", "never read with read_committed; read without", _aborted, _APIS),
    Behaviour("transactions, undecided", "read_committed waits at an open transaction", _undecided, _APIS),
    Behaviour("transactions, fencing", "a second producer of the id ends the first one's transaction", _fenced, _APIS),
    Behaviour(
        "transactions, offsets", "a group's offsets are committed with the records or not at all", _offsets, _APIS
    ),
    Behaviour("transactions, restart", "kill -9 of the node inside of transactions", _restarted, _APIS),
)
