"""A standalone node of the last code without one runtime of coordinators: opened alone, and grown into a cluster."""

import os
import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from duramen.doors.cluster.secret import SECRET_BYTES, make_secret
from duramen.node.process import NodeProcess, hold_port
from tests.clients import until
from tests.doors.kafka.sharing import ACCEPT, Given
from tests.golden.standalone import (
    ARCHIVE,
    COMMITTED,
    COUNT,
    GROUP,
    OPEN_ID,
    STREAM,
    TRANSACTIONAL_ID,
    share_consumer,
    standalone,
)

KEPT = Path(__file__).parent / "level2"
WAIT_S = 60.0
NUMBERS = [str(number) for number in range(COUNT)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(KEPT / ARCHIVE) as archive:
        archive.extractall(tmp_path / "node", filter="data")
    return tmp_path / "node"


def consumer(node: NodeProcess, level: str = "read_committed") -> Consumer:
    return Consumer({
        "bootstrap.servers": node.kafka, "group.id": GROUP, "isolation.level": level, "enable.auto.commit": False,
    })  # fmt: skip


def committed(node: NodeProcess, level: str = "read_committed") -> int:
    one = consumer(node, level)
    (found,) = one.committed([TopicPartition(STREAM, 0)], WAIT_S)
    one.close()
    return found.offset


def values(node: NodeProcess, count: int) -> list[str]:
    """The first so many records that are read committed."""
    one = consumer(node)
    one.assign([TopicPartition(STREAM, 0, 0)])
    found: list[str] = []

    def read() -> bool:
        for message in one.consume(count - len(found), 1.0):
            assert message.error() is None
            found.append((message.value() or b"").decode())
        return len(found) >= count

    until(read, WAIT_S)
    one.close()
    return found


def begin_transactions(node: NodeProcess, id_: str, fate: str) -> None:
    """The producer of a transactional id goes on: what it had open is aborted, and the next transaction is `fate`."""
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": id_})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(STREAM, fate.encode(), partition=0)
    producer.commit_transaction(WAIT_S)


def check_ids(node: NodeProcess) -> None:
    """Transactions by their fate; the open one holds back what comes behind it until its producer comes back."""
    assert values(node, COUNT + 1) == [*NUMBERS, "committed"]
    begin_transactions(node, OPEN_ID, "later")
    begin_transactions(node, TRANSACTIONAL_ID, "last")
    assert values(node, COUNT + 4) == [*NUMBERS, "committed", "0", "later", "last"]


def check_shares(node: NodeProcess) -> None:
    """What was acknowledged does not come again, and the rest with the deliveries that it had."""
    two = share_consumer(node, "two")
    found = {got.offset: got.deliveries for got in until(two.fetch, WAIT_S)}
    assert set(found) == set(range(COUNT // 2, COUNT))
    assert found[COUNT // 2] == 2
    assert two.say(Given(COUNT // 2, COUNT - 1, [ACCEPT])) == {0: 0}
    two.connection.close()


def test_the_present_code_opens_it(directory: Path) -> None:
    node = standalone(directory)
    with node:
        assert committed(node, "read_uncommitted") == COMMITTED  # an open transaction commits another
        check_ids(node)
        assert committed(node) == COMMITTED  # the offsets of the transaction that was open do not count
        check_shares(node)
        node.kill()
        node.start()
        assert committed(node) == COMMITTED
        assert values(node, COUNT + 4)[-1] == "last"


@pytest.mark.long
def test_it_grows_into_a_cluster(directory: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    make_secret(str(secret), os.urandom(SECRET_BYTES))
    held = [hold_port() for _ in range(2)]
    listens = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    shared = {"cluster.seeds": listens[0], "cluster.secret.file": secret}
    first = standalone(directory, settings={**shared, "cluster.listen": listens[0], "node.id": 1})
    second = standalone(tmp_path / "two", settings={**shared, "cluster.listen": listens[1], "node.id": 2})
    try:
        with first, second:
            assert committed(second, "read_uncommitted") == COMMITTED
            check_ids(second)
            assert committed(first) == COMMITTED
            check_shares(first)
    finally:
        for one in held:
            one.close()
