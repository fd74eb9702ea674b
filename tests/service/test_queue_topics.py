"""Queues as topics on a node by hand: names, ids, sequences, and who is woken."""

from uuid import UUID

import pytest

from duramen.base.errors import (
    ConfigInvalid,
    DuramenError,
    NameInvalid,
    OffsetOutOfRange,
    OutOfOrderSequence,
    QueueTransactionRefused,
)
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.metadata.decisions import Definition
from duramen.service.light_topics import LightTopic
from duramen.service.queue_topics import QueueTopics
from duramen.service.resolve import ResolvedTopics, TopicResolver
from duramen.sim.broker import CallbackResult, ManualBroker


class Place:
    """A node with a space."""

    def __init__(self, **config: str) -> None:
        self.hand = ManualBroker()
        self.hand.create("mail", 4, kind="queues", **{"queue.topic.prefix": "mail.", **config})
        self.hand.settle()
        self.topics = QueueTopics(self.hand.broker)

    def topic(self, name: str) -> LightTopic:
        found = self.topics.find(name)
        assert found is not None
        return found

    def put(self, name: str, value: bytes, sequence: int = -1, attributes: int = 0) -> tuple[int, DuramenError | None]:
        """The offset, or why it was not taken."""
        producer = (-1, -1) if sequence < 0 else (7, 0)
        batch = encode(
            [BatchInput(5, b"key", value)], attributes=attributes, producer_id=producer[0],
            producer_epoch=producer[1], base_sequence=sequence,
        )  # fmt: skip
        answer: CallbackResult[object] = CallbackResult()
        self.topic(name).append(memoryview(batch), answer, all_replicas=True)
        self.hand.settle()
        offset, error = answer.calls[0]
        return offset, error

    def fetch(self, name: str, offset: int, wait_ms: int = 1000) -> CallbackResult[list[FetchResult]]:
        answer: CallbackResult[list[FetchResult]] = CallbackResult()
        self.hand.broker.fetches.fetch(
            [PartitionFetch(self.topic(name).source(-1), offset, 1 << 20)], min_bytes=1, max_bytes=1 << 20,
            max_wait_ms=wait_ms, done=answer,
        )  # fmt: skip
        self.hand.settle()
        return answer


def test_a_topic_is_found_by_its_id_also_by_a_node_that_never_heard_its_name() -> None:
    place = Place()
    ann = place.topic("mail.ann")
    assert QueueTopics(place.hand.broker).find(ann.id) is None
    place.put("mail.ann", b"x")
    found = QueueTopics(place.hand.broker).find(ann.id)
    assert found is not None
    assert (found.name, found.id) == ("mail.ann", ann.id)
    assert place.topics.find(UUID(int=ann.id.int ^ 1 << 40)) is None
    assert place.topics.find("mail.") is place.topics.find("mail.a b") is place.topics.find("other") is None


def test_handlers_of_streams_find_none_and_names_go_with_the_space() -> None:
    place = Place()
    resolver = TopicResolver(place.hand.broker.streams, place.topics)
    named = ResolvedTopics(resolver.known(["mail", "mail.ann"]), {})
    assert named.find("mail.ann") is None
    assert named.light("mail.ann") is not None
    assert (named.partitions("mail"), named.partitions("mail.ann"), named.partitions("x")) == (4, 1, None)
    place.hand.delete("mail")
    assert resolver.all_known.get("mail.ann") is None


def test_names_hide_no_others() -> None:
    hand = Place().hand

    def create(name: str, **config: str) -> BaseException | None:
        answer: CallbackResult[Exception | None] = CallbackResult()
        hand.broker.create_stream(Definition(name, 1, config), answer)
        hand.settle()
        return answer.error

    prefix = "queue.topic.prefix"
    assert isinstance(create("mail.ann"), NameInvalid)
    assert create("mailing") is None
    for wrong in ("mail.b.", "ma", "mailing", "a b", "__a"):
        assert isinstance(create("other", kind="queues", **{prefix: wrong}), ConfigInvalid)
    assert isinstance(create("other", **{prefix: "o."}), ConfigInvalid)
    assert create("other", kind="queues") is None
    for wrong, error in (("mail.b.", ConfigInvalid), ("o.", type(None)), ("oth", ConfigInvalid)):
        answer: CallbackResult[Exception | None] = CallbackResult()
        hand.broker.configure_stream("other", {prefix: wrong}, answer)
        hand.settle()
        assert isinstance(answer.error, error)
    assert isinstance(create("o.x"), NameInvalid)
    hand.delete("mail")
    assert create("mail.ann") is None


def test_only_who_waits_for_the_queue_is_woken() -> None:
    place = Place()
    waiting = place.fetch("mail.ann", 0)
    for number in range(9):
        place.put(f"mail.u{number}", b"x")
    assert not waiting.there
    offset, error = place.put("mail.ann", b"y")
    assert error is None
    (found,) = waiting.value
    assert (found.error, found.high_watermark, found.last_stable_offset) == (None, offset + 1, offset + 1)
    (later,) = place.fetch("mail.ann", offset + 1, 0).value
    assert (later.size, later.high_watermark) == (0, offset + 1)
    (beyond,) = place.fetch("mail.ann", 1000, 0).value
    assert isinstance(beyond.error, OffsetOutOfRange)


def test_an_idempotent_producer_has_nothing_twice() -> None:
    place = Place()
    first = place.put("mail.ann", b"a", 0)
    assert place.put("mail.ann", b"a", 0) == first
    assert isinstance(place.put("mail.ann", b"c", 2)[1], OutOfOrderSequence)
    assert place.put("mail.bob", b"a", 0)[1] is None
    assert isinstance(place.put("mail.ann", b"x", 9, TRANSACTIONAL)[1], QueueTransactionRefused)


@pytest.mark.parametrize(("timestamp", "wanted"), [(-1, 3), (-2, 0), (-3, 0), (5, 0), (6, -1)])
def test_offsets(timestamp: int, wanted: int) -> None:
    place = Place()
    for _ in range(3):
        place.put("mail.ann", b"x")
    answer: CallbackResult[object] = CallbackResult()
    place.topic("mail.ann").find_offset(timestamp, answer)
    place.hand.settle()
    assert answer.calls[0] == (wanted, 5 if wanted == 0 and timestamp != -2 else -1, None)


def test_a_topic_shows_what_is_kept_of_the_queue() -> None:
    place = Place(**{"retention.records": "2"})
    offsets = [place.put("mail.ann", b"%d" % number)[0] for number in range(4)]
    (found,) = place.fetch("mail.ann", 0).value
    assert [value in (found.made or b"") for value in (b"\x020", b"\x021", b"\x022", b"\x023")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert (found.error, found.start_offset, found.high_watermark) == (None, offsets[2], offsets[3] + 1)
    place.put("mail.ann", b"4")
    answer: CallbackResult[object] = CallbackResult()
    place.topic("mail.ann").find_offset(-2, answer)
    place.hand.settle()
    assert answer.calls[0] == (offsets[3], -1, None)
