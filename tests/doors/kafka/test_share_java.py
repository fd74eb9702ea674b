"""Share groups with Java's KafkaShareConsumer, as it is: `java/ShareDriver.java` runs it by lines on a pipe."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest
from confluent_kafka import Producer
from tests.clients import until
from tests.doors.kafka.sharing import RawShareConsumer

import duramen
from duramen.bench.peers.kafka import fetch_jars
from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long

_DRIVER: Final = Path(__file__).parent / "java" / "ShareDriver.java"
_MAKING_S: Final = 60.0
_LOCK_MS: Final = 10_000
_LIMIT: Final = {"group.share.delivery.count.limit": 3}


class Polled(NamedTuple):
    """A record that was polled."""

    partition: int
    offset: int
    deliveries: int
    value: str


class JavaConsumer:
    """A KafkaShareConsumer in a process of its own."""

    def __init__(
        self, node: NodeProcess, jars: Path, *, mode: str = "explicit", configs: Sequence[str] = (), topic: str = "s"
    ) -> None:  # fmt: skip
        java = shutil.which("java")
        assert java is not None, "these tests need Java 17"
        self._process = subprocess.Popen(
            [java, "-Xmx128m", "-cp", f"{jars}/*", str(_DRIVER), node.kafka, "g", topic, mode, *configs],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _lines(self) -> list[str]:
        assert self._process.stdout is not None
        found: list[str] = []
        for line in self._process.stdout:
            if line.startswith("error"):
                raise AssertionError(line)
            if line.strip() == "ok":
                return found
            found.append(line.strip())
        raise AssertionError("the consumer has ended")

    def _ask(self, line: str) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._lines()

    def poll(self) -> list[Polled]:
        """Poll until there is something."""
        lines: list[str] = until(lambda: self._ask("poll 2000"))
        words = [line.split(" ", 4) for line in lines]
        return [Polled(int(word[1]), int(word[2]), int(word[3]), word[4]) for word in words]

    def say(self, polled: Sequence[Polled], what: str) -> None:
        """Acknowledge records."""
        for one in polled:
            self._ask(f"say {one.partition} {one.offset} {what}")

    def commit(self) -> list[str]:
        """What became of the acknowledgements, by partition: `-` or an error."""
        return [line.rsplit(" ", 1)[1] for line in self._ask("commit")]

    def close(self) -> None:
        """Close it as a program does."""
        self._ask("close")

    def freeze(self) -> None:
        """Let it do nothing any more; it is there."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the process without a word to the broker."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture(scope="module")
def jars() -> Path:
    """Apache Kafka's jars."""
    return fetch_jars()


@pytest.fixture
def sharing(new_node: Callable[..., NodeProcess], request: pytest.FixtureRequest) -> Iterator[NodeProcess]:
    """A node on which group `g` begins at the start of stream `s`; its settings may be a test's parameter."""
    with new_node(_LIMIT | getattr(request, "param", {})) as node:
        write(node, b"first")
        member = RawShareConsumer(node, "g", "s", "operator")
        member.configure(share_auto_offset_reset="earliest")
        member.connection.close()
        yield node


def write(node: NodeProcess, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 0})
    for value in values:
        producer.produce("s", value)
        assert producer.flush(_MAKING_S) == 0


def test_accept_release_reject_and_renew(sharing: NodeProcess, jars: Path) -> None:
    with JavaConsumer(sharing, jars) as one:
        first = one.poll()
        assert [(polled.offset, polled.deliveries, polled.value) for polled in first] == [(0, 1, "first")]
        one.say(first, "RENEW")
        assert one.commit() == ["-"]
        first = one.poll()
        one.say(first, "RELEASE")
        assert one.commit() == ["-"]
        again = one.poll()
        assert [(polled.offset, polled.deliveries) for polled in again] == [(0, 2)]
        one.say(again, "REJECT")
        write(sharing, b"second")
        second = one.poll()
        assert [(polled.offset, polled.value) for polled in second] == [(1, "second")]
        one.say(second, "ACCEPT")
        assert one.commit() == ["-"]
        one.close()


def test_two_share_one_partition_and_nothing_is_lost_or_delivered_twice(sharing: NodeProcess, jars: Path) -> None:
    limit = ["max.poll.records=10"]
    with JavaConsumer(sharing, jars, configs=limit) as one, JavaConsumer(sharing, jars, configs=limit) as two:
        write(sharing, *(b"%d" % index for index in range(100)))
        got: dict[str, list[Polled]] = {"one": [], "two": []}
        while len(got["one"]) + len(got["two"]) < 101:
            for name, consumer in (("one", one), ("two", two)):
                if len(got["one"]) + len(got["two"]) < 101:
                    polled = consumer.poll()
                    consumer.say(polled, "ACCEPT")
                    assert consumer.commit() == ["-"]
                    got[name] += polled
        assert got["one"]
        assert got["two"]
        everything = [polled.offset for polled in got["one"] + got["two"]]
        assert sorted(everything) == list(range(101))
        one.close()
        two.close()


def test_a_consumer_that_dies_gives_back_what_it_had(sharing: NodeProcess, jars: Path) -> None:
    with JavaConsumer(sharing, jars) as one, JavaConsumer(sharing, jars) as two:
        assert one.poll()
        one.kill()
        again = two.poll()
        assert [(polled.offset, polled.deliveries) for polled in again] == [(0, 2)]
        two.say(again, "ACCEPT")
        two.close()


@pytest.mark.parametrize("sharing", [{"group.share.record.lock.duration.ms": _LOCK_MS}], indirect=True, ids=["short"])
def test_a_lock_runs_out_and_a_poisoned_record_is_given_up(sharing: NodeProcess, jars: Path) -> None:
    with JavaConsumer(sharing, jars) as one, JavaConsumer(sharing, jars) as two:
        assert [polled.deliveries for polled in one.poll()] == [1]
        one.freeze()  # it would take its turn again
        late = two.poll()
        assert [(polled.offset, polled.deliveries) for polled in late] == [(0, 2)]
        one.kill()
        two.say(late, "RELEASE")
        two.commit()
        third = two.poll()
        assert [polled.deliveries for polled in third] == [3]
        two.say(third, "RELEASE")
        two.commit()
        write(sharing, b"next")
        after = two.poll()
        assert [polled.offset for polled in after] == [1]
        two.say(after, "ACCEPT")
        two.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_node_that_comes_back(sharing: NodeProcess, jars: Path, how: str) -> None:
    with JavaConsumer(sharing, jars) as one:
        one.say(one.poll(), "ACCEPT")
        assert one.commit() == ["-"]
        write(sharing, b"held")
        held = one.poll()
        if how == "stop":
            assert sharing.stop() == 0
        else:
            sharing.kill()
        sharing.start()
        one.say(held, "RELEASE")
        one.commit()
        again = one.poll()
        assert [(polled.offset, polled.value) for polled in again] == [(1, "held")]
        one.say(again, "ACCEPT")
        assert one.commit() == ["-"]
        one.close()


def test_implicit_acknowledgement(sharing: NodeProcess, jars: Path) -> None:
    with JavaConsumer(sharing, jars, mode="implicit") as one:
        assert [polled.value for polled in one.poll()] == ["first"]
        write(sharing, b"second")
        assert [polled.value for polled in one.poll()] == ["second"]
        assert one.commit() == ["-"]
        one.close()
    with JavaConsumer(sharing, jars, mode="implicit") as two:
        write(sharing, b"third")
        assert [(polled.value, polled.deliveries) for polled in two.poll()] == [("third", 1)]
        two.close()


def test_the_entries_of_a_queue_with_gaps_between_them(sharing: NodeProcess, jars: Path) -> None:
    with duramen.connect(sharing.http) as client:
        client.spaces.create("mail", shards=1, config={"queue.topic.prefix": "mail."})
        queues = client.queues("mail")
        places = []
        for number in range(20):
            places += queues.enqueue("ann", [f"{number}"])
            queues.enqueue("bob", ["x"] * (number % 3))
        queues.delete("ann", [places[7]])
        wanted = [int(place.split(".")[1]) for at, place in enumerate(places) if at != 7]
        with JavaConsumer(sharing, jars, topic="mail.ann", configs=["max.poll.records=6"]) as one:
            got: list[Polled] = []
            while len(got) < 19:
                found = one.poll()
                assert len(found) <= 6
                one.say(found[:-1], "ACCEPT")
                one.say(found[-1:], "RELEASE" if found[-1].deliveries == 1 else "ACCEPT")
                assert one.commit() == ["-"]
                got += [polled for polled in found if polled is not found[-1] or polled.deliveries > 1]
            assert sorted(polled.offset for polled in got) == wanted
            queues.enqueue("ann", ["last"])
            last = one.poll()
            assert [polled.value for polled in last] == ["last"]
            one.say(last, "ACCEPT")
            assert one.commit() == ["-"]
            one.close()


def test_a_topic_of_the_inventory_that_is_renamed(sharing: NodeProcess, jars: Path) -> None:
    producer = Producer({"bootstrap.servers": sharing.kafka})
    with duramen.connect(sharing.http) as client:
        client.inventory.create_tenants(["acme"])
        client.inventory.create_namespaces("acme", ["prod"])
        client.inventory.create_topics("acme/prod", ["a"])
        with JavaConsumer(sharing, jars, topic="acme.prod.a") as one:
            for number in range(10):
                producer.produce("acme.prod.a", b"%d" % number)
            assert producer.flush(_MAKING_S) == 0
            got: list[Polled] = []
            while len(got) < 10:
                got += one.poll()
            one.say(got[:5], "ACCEPT")
            one.say(got[5:9], "RELEASE")
            client.inventory.move_topic("acme/prod/a", "acme/prod/b")
            # What was acquired under the old name is acknowledged under it.
            assert one.commit() == ["-"]
            one.close()
        with JavaConsumer(sharing, jars, topic="acme.prod.b") as two:
            again: list[Polled] = []
            while len(again) < 5:
                again += two.poll()
            assert sorted((int(polled.value), polled.deliveries) for polled in again) == [
                (5, 2), (6, 2), (7, 2), (8, 2), (9, 2),
            ]  # fmt: skip
            two.say(again, "ACCEPT")
            assert two.commit() == ["-"]
            two.close()
