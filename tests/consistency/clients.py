"""Unmodified clients that send and poll without end, and write down what they were told. Values are unique.

Whatever a client is not told for certain is `info`: a commit without an answer, a send that timed out.
"""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.clients import again, until
from tests.consistency.history import Outcome, Poll, Recorder, Send

__all__ = [
    "COPIED",
    "TOPIC",
    "Assigned",
    "Client",
    "Copier",
    "Pipelined",
    "PlainSender",
    "Subscribed",
    "Transactions",
    "everything",
]

TOPIC: Final = "judged"
COPIED: Final = "copied"
"""Where `Copier` writes; its keys are numbered after those of `TOPIC`."""

_COPIERS: Final = "copiers"
_POLL_S: Final = 0.1
_STEP_S: Final = 0.02
_END_S: Final = 60.0
_TRIES: Final = 20
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

    def check(self, found: Sequence[Poll]) -> None:
        """Raise AssertionError where what is stored in the end is not what it has done."""

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

    def __init__(self, sends: Sequence[Send], *, decided: bool, copied_from: int = 0) -> None:
        """`decided`: what is delivered is stored for good; in a transaction that comes with its end.

        Keys from `copied_from` on are those of `COPIED`, where that is not 0.
        """
        self._decided = decided
        self._copied_from = copied_from
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
            topic = COPIED if self._copied_from else TOPIC
            place = send.key - self._copied_from
            producer.produce(topic, b"%d" % send.value, partition=place, on_delivery=partial(self.told, at))


class PlainSender(Client):
    """An idempotent producer; an operation is a few sends at once."""

    most = 5
    batching: Mapping[str, int] = {}

    def work(self) -> None:
        producer = self.producer()
        while not self.stopping.wait(_STEP_S):
            sends = self.sends(self.most)
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
                "error_cb": self.said, **self.batching,
            }
        )  # fmt: skip

    def said(self, error: KafkaError) -> None:
        """The library says that something is wrong; it goes on by itself."""


class Pipelined(PlainSender):
    """An idempotent producer with several batches in flight to each partition."""

    most = 400
    batching: Mapping[str, int] = {"batch.num.messages": 8}


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
        commit = self.chance.random() >= 0.25
        return self._end_with(producer, partial(deliveries.produce, producer), deliveries, commit=commit)

    def _end_with(
        self, producer: Producer, fill: Callable[[], None], deliveries: _Deliveries, *, commit: bool
    ) -> Outcome:
        """One transaction, with what `fill` writes."""
        try:
            producer.begin_transaction()
            fill()
            if not commit:
                producer.flush(_END_S)
                again(producer.abort_transaction, _TRIES)
                return "fail"
            again(producer.commit_transaction, _TRIES)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                return "info"
            try:
                again(producer.abort_transaction, _TRIES)
            except KafkaException:
                return "info"
            return "fail"
        return "info" if deliveries.errors or deliveries.left else "ok"

    def _producer(self) -> Producer:
        for _ in range(_TRIES):
            producer = Producer(
                {
                    **self.settings, "transactional.id": f"judged-{self.process}", "linger.ms": 0,
                    "transaction.timeout.ms": 20_000,
                }
            )  # fmt: skip
            try:
                again(partial(producer.init_transactions, _END_S), _TRIES)
            except KafkaException as error:
                self.problem = f"{self.name}: {error}"
            else:
                self.problem = ""
                return producer
        raise AssertionError(self.problem)


class Copier(Transactions):
    """A member of a group that copies what is committed in `TOPIC` to `COPIED`, records and offsets in transactions."""

    def work(self) -> None:
        reader = _Reader(
            {**self.settings, "group.id": _COPIERS, "enable.auto.commit": False, "session.timeout.ms": 6000}
        )
        reader.consumer.subscribe([TOPIC])
        producer = self._producer()
        while not self.stopping.is_set():
            polls = reader.poll(100)
            if not polls:
                continue
            sends = [Send(self.partitions + poll.key, value) for poll in polls for _, value in poll.records]
            self.invoke([*polls, *sends], moved=True)
            deliveries = _Deliveries(sends, decided=False, copied_from=self.partitions)
            outcome = self._copy(producer, reader.consumer, polls, deliveries)
            # What was aborted is sent again, and values are unique: `check` finds what is there twice.
            self.complete(outcome, [*polls, *(deliveries.parts if outcome == "ok" else ())])
            if outcome == "info":
                producer = self._producer()
            if outcome != "ok":
                self._go_back(reader.consumer)
        self._producer()
        reader.consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, polls: Sequence[Poll], deliveries: _Deliveries) -> Outcome:
        offsets = [TopicPartition(TOPIC, poll.key, poll.records[-1][0] + 1) for poll in polls]

        def fill() -> None:
            deliveries.produce(producer)
            member = consumer.consumer_group_metadata()
            again(lambda: producer.send_offsets_to_transaction(offsets, member, _END_S), _TRIES)

        return self._end_with(producer, fill, deliveries, commit=True)

    def _go_back(self, consumer: Consumer) -> None:
        """To what is committed, of the partitions that are still this member's."""
        for known in _answered(lambda: consumer.committed(consumer.assignment(), timeout=_END_S)):
            with suppress(KafkaException):
                consumer.seek(TopicPartition(TOPIC, known.partition, max(known.offset, 0)))

    def check(self, found: Sequence[Poll]) -> None:
        """What is copied is what lies before the group's offsets, each once and in its order."""
        reader = _Reader({**self.settings, "group.id": _COPIERS})
        places = [TopicPartition(TOPIC, key) for key in range(self.partitions)]
        offsets = {one.partition: one.offset for one in reader.consumer.committed(places, timeout=_END_S)}
        reader.consumer.close()
        records = {poll.key: poll.records for poll in found}
        for key, offset in offsets.items():
            wanted = [value for at, value in records.get(key, ()) if at < offset]
            copied = [value for _, value in records.get(self.partitions + key, ())]
            assert copied == wanted, f"{self.name}, key {key}, offset {offset}: {_difference(wanted, copied)}"


def _difference(wanted: Sequence[int], copied: Sequence[int]) -> str:
    more, less = Counter(copied) - Counter(wanted), Counter(wanted) - Counter(copied)
    return f"more: {sorted(more.elements())[:10]}, missing: {sorted(less.elements())[:10]}"


def _answered(call: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """The answer, once there is one."""
    for _ in range(_TRIES):
        with suppress(KafkaException):
            return call()
    return call()


def _bounds(reader: Consumer, topic: str, partition: int) -> tuple[int, ...]:
    """Where the log of a key begins and ends; nothing where its leader has just changed."""
    try:
        return tuple(reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_END_S, cached=False))
    except KafkaException:
        return ()


def everything(address: str, partitions: int, topics: Sequence[str] = (TOPIC,)) -> list[Poll]:
    """All that is committed, in the end. Raises AssertionError where a key's end does not come."""
    reader = Consumer(
        {
            "bootstrap.servers": address, "group.id": "everything", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    places = [(topic, partition) for topic in topics for partition in range(partitions)]
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in places])
    found: dict[tuple[str, int], list[tuple[int, int]]] = {place: [] for place in places}
    ended: set[tuple[str, int]] = set()
    deadline_s = time.monotonic() + _END_S
    while len(ended) < len(places):
        assert time.monotonic() < deadline_s, f"the ends of {sorted(set(found) - ended)} do not come"
        for message in reader.consume(1000, timeout=_POLL_S):
            error, value = message.error(), message.value()
            place = message.topic() or "", message.partition() or 0
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(place)
            elif value is not None:
                found[place].append((message.offset() or 0, int(value)))
    for place in places:
        low, high = until(partial(_bounds, reader, *place))
        assert low == 0
        assert not found[place] or found[place][-1][0] < high
    reader.close()
    return [Poll(key, tuple(found[place])) for key, place in enumerate(places) if found[place]]
