"""Unmodified clients that send and poll without end, and write down what they were told. Values are unique.

Whatever a client is not told for certain is `info`: a commit without an answer, a send that timed out.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.clients import until
from tests.consistency.history import Outcome, Poll, Recorder, Send

__all__ = ["TOPIC", "Assigned", "Client", "PlainSender", "Subscribed", "Transactions", "everything"]

TOPIC: Final = "judged"
_POLL_S: Final = 0.1
_STEP_S: Final = 0.02
_END_S: Final = 60.0
_QUICK: Final[Mapping[str, str | int | bool]] = {
    "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0,
    "socket.timeout.ms": 10_000, "topic.metadata.refresh.interval.ms": 5000,
}  # fmt: skip

_values = itertools.count(1)


class Client(threading.Thread):
    """A process of the history. `problem` is what should not have happened and no checker sees."""

    records = True
    """Whether it writes down operations; else it only has problems."""

    def __init__(self, process: int, address: str, partitions: int, recorder: Recorder, seed: int) -> None:
        super().__init__(name=f"{type(self).__name__} {process}")
        self.process = process
        self.partitions = partitions
        self.chance = random.Random(f"{seed}/{process}")
        self.stopping = threading.Event()
        self.problem = ""
        self._recorder = recorder
        self.settings: dict[str, str | int | bool] = {"bootstrap.servers": address, **_QUICK}

    def run(self) -> None:
        with ExitStack() as stack:
            stack.push(self._ended)
            self.work()

    def _ended(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is not None:
            self.problem = f"{self.name}: {error!r}"
        return isinstance(error, Exception)

    def work(self) -> None:
        """Do operations until `stopping`."""
        raise NotImplementedError

    def invoke(self, parts: Sequence[Send | Poll], *, moved: bool = False) -> None:
        """An operation begins."""
        self._recorder.invoke(self.process, parts, moved=moved)

    def complete(self, outcome: Outcome, parts: Sequence[Send | Poll]) -> None:
        """It has ended."""
        self._recorder.complete(self.process, outcome, parts)

    def sends(self, most: int) -> list[Send]:
        """New values for keys by chance."""
        keys = [self.chance.randrange(self.partitions) for _ in range(self.chance.randrange(1, most + 1))]
        return [Send(key, next(_values)) for key in keys]


class _Deliveries:
    """What became of the sends of one operation."""

    def __init__(self, sends: Sequence[Send], *, decided: bool) -> None:
        """`decided`: what is delivered is stored for good; in a transaction that comes with its end."""
        self._decided = decided
        self.parts = list(sends)
        self.left = len(sends)
        self.errors: list[KafkaError] = []

    def told(self, at: int, error: KafkaError | None, message: Message) -> None:
        self.left -= 1
        if error is not None:
            self.errors.append(error)
        else:
            self.parts[at] = self.parts[at]._replace(offset=message.offset(), delivered=self._decided)

    def produce(self, producer: Producer) -> None:
        for at, send in enumerate(self.parts):
            producer.produce(TOPIC, b"%d" % send.value, partition=send.key, on_delivery=partial(self.told, at))


class PlainSender(Client):
    """An idempotent producer; an operation is a few sends at once."""

    def work(self) -> None:
        producer = self.producer()
        while not self.stopping.wait(_STEP_S):
            sends = self.sends(5)
            self.invoke(sends)
            deliveries = _Deliveries(sends, decided=True)
            deliveries.produce(producer)
            producer.flush(_END_S)
            certain = not deliveries.errors and not deliveries.left
            self.complete("ok" if certain else "info", deliveries.parts)
            if not certain:
                producer = self.producer()

    def producer(self) -> Producer:
        """A new one."""
        return Producer(
            {
                **self.settings, "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": int(_END_S * 1000),
                "error_cb": self.said,
            }
        )  # fmt: skip

    def said(self, error: KafkaError) -> None:
        """The library says that something is wrong; it goes on by itself."""


class _Reader:
    """A consumer of what is committed, and what one poll of it gave by key."""

    def __init__(self, settings: Mapping[str, str | int | bool]) -> None:
        self.consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        )

    def poll(self, most: int, timeout_s: float = _POLL_S) -> list[Poll]:
        found: dict[int, list[tuple[int, int]]] = {}
        for message in self.consumer.consume(most, timeout=timeout_s):
            value, error = message.value(), message.error()
            if error is None and value is not None:
                found.setdefault(message.partition() or 0, []).append((message.offset() or 0, int(value)))
        return [Poll(key, tuple(records)) for key, records in found.items()]

    def assign(self, positions: Mapping[int, int]) -> None:
        self.consumer.assign([TopicPartition(TOPIC, key, offset) for key, offset in positions.items()])


class Assigned(Client):
    """A consumer with all keys, from the beginning on."""

    def work(self) -> None:
        reader = _Reader({**self.settings, "group.id": f"assigned-{self.process}", "enable.auto.commit": False})
        reader.assign(dict.fromkeys(range(self.partitions), OFFSET_BEGINNING))
        while not self.stopping.is_set():
            self.invoke([])
            self.complete("ok", reader.poll(500))
        reader.consumer.close()


class Subscribed(Client):
    """A member of a group, that leaves and comes again.

    Mostly it does not leave before it was assigned something: each that comes to an empty group makes that wait three
    seconds more, and two that come and go would keep it waiting.
    """

    def work(self) -> None:
        while not self.stopping.is_set():
            self._life()

    def _life(self) -> None:
        moved = True
        patient = self.chance.random() < 0.8

        def assigned(*_: object) -> None:
            nonlocal moved, patient
            moved, patient = True, False

        reader = _Reader(
            {**self.settings, "group.id": "subscribed", "auto.commit.interval.ms": 200, "session.timeout.ms": 6000}
        )
        reader.consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=assigned, on_lost=assigned)
        left = self.chance.randrange(20, 80)
        while left and not self.stopping.is_set():
            polls = reader.poll(500)
            self.invoke([], moved=moved)
            moved = False
            self.complete("ok", polls)
            if not patient:
                left -= 1
        reader.consumer.close()


class Transactions(Client):
    """A transactional producer that polls and sends in one transaction, commits most and aborts some."""

    def work(self) -> None:
        reader = _Reader({**self.settings, "group.id": f"transactions-{self.process}", "enable.auto.commit": False})
        positions = dict.fromkeys(range(self.partitions), 0)
        reader.assign(positions)
        producer, moved = self._producer(), False
        while not self.stopping.wait(_STEP_S):
            polls = reader.poll(100)
            sends = self.sends(4)
            self.invoke([*polls, *sends], moved=moved)
            moved = False
            deliveries = _Deliveries(sends, decided=False)
            outcome = self._transaction(producer, deliveries)
            self.complete(outcome, [*polls, *deliveries.parts])
            if outcome == "ok":
                positions |= {poll.key: poll.records[-1][0] + 1 for poll in polls}
            else:
                reader.assign(positions)
                moved = True
            if outcome == "info":
                producer = self._producer()  # which ends what the one before left open
        self._producer()
        reader.consumer.close()

    def _transaction(self, producer: Producer, deliveries: _Deliveries) -> Outcome:
        try:
            producer.begin_transaction()
            deliveries.produce(producer)
            if self.chance.random() < 0.25:
                producer.flush(_END_S)
                _again(producer.abort_transaction)
                return "fail"
            _again(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                return "info"
            try:
                _again(producer.abort_transaction)
            except KafkaException:
                return "info"
            return "fail"
        return "info" if deliveries.errors or deliveries.left else "ok"

    def _producer(self) -> Producer:
        for _ in _tries():
            producer = Producer(
                {
                    **self.settings, "transactional.id": f"judged-{self.process}", "linger.ms": 0,
                    "transaction.timeout.ms": 20_000,
                }
            )  # fmt: skip
            try:
                _again(partial(producer.init_transactions, _END_S))
            except KafkaException as error:
                self.problem = f"{self.name}: {error}"
            else:
                self.problem = ""
                return producer
        raise AssertionError(self.problem)


def _tries() -> Iterator[int]:
    return iter(range(20))


def _again(call: Callable[[], object]) -> None:
    """Call, and again where the client says that this may help."""
    for left in reversed(range(20)):
        try:
            call()
        except KafkaException as error:
            if not left or not error.args[0].retriable():
                raise
        else:
            return


def _bounds(reader: Consumer, key: int) -> tuple[int, ...]:
    """Where the log of a key begins and ends; nothing where its leader has just changed."""
    try:
        return tuple(reader.get_watermark_offsets(TopicPartition(TOPIC, key), timeout=_END_S, cached=False))
    except KafkaException:
        return ()


def everything(address: str, partitions: int) -> list[Poll]:
    """All that is committed, in the end. Raises AssertionError where a key's end does not come."""
    reader = Consumer(
        {
            "bootstrap.servers": address, "group.id": "everything", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    reader.assign([TopicPartition(TOPIC, key, OFFSET_BEGINNING) for key in range(partitions)])
    found: dict[int, list[tuple[int, int]]] = {key: [] for key in range(partitions)}
    ended: set[int] = set()
    deadline_s = time.monotonic() + _END_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline_s, f"the ends of {sorted(set(found) - ended)} do not come"
        for message in reader.consume(1000, timeout=_POLL_S):
            error, value, key = message.error(), message.value(), message.partition() or 0
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(key)
            elif value is not None:
                found[key].append((message.offset() or 0, int(value)))
    for key in range(partitions):
        low, high = until(partial(_bounds, reader, key))
        assert low == 0
        assert not found[key] or found[key][-1][0] < high
    reader.close()
    return [Poll(key, tuple(records)) for key, records in found.items() if records]
