"""What a publisher needs is data; who lacks it gets JetStream's error, and a subject's streams may resolve later."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from tests.doors.nats.capturing import Place, message

from duramen.doors.nats.actions import ACTIONS
from duramen.service.admission import Service
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.resolve import Found, StreamResolver, Topic, TopicKey


class Only:
    """An authorizer that allows nothing but to write to some topics."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def allows(self, _: object, access: Access, name: str | None) -> bool:
        return access == Access(Operation.WRITE, ResourceType.TOPIC) and name in self._names


class Later:
    """A resolver that answers when it is told to."""

    def __init__(self, streams: StreamResolver) -> None:
        self._streams = streams
        self.waiting: list[Callable[[], None]] = []

    all_known = None

    def known(self, _: Collection[TopicKey]) -> Found | None:
        return None

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        self.waiting.append(lambda: self._streams.resolve(keys, done))

    def every(self) -> Iterable[Topic]:
        return self._streams.every()

    def from_name(self, first: str) -> Iterator[Topic]:
        return self._streams.from_name(first)


def stored(place: Place, name: str) -> list[Any]:
    return [record.value for record in place.records(name)]


def test_every_action_says_what_it_needs() -> None:
    assert ACTIONS
    assert all(rules.needs for rules in ACTIONS.values())


def test_what_must_not_be_written_is_answered_with_an_error() -> None:
    place = Place()
    place.create("mine", "a.>")
    place.create("theirs", "a.b")
    place.service = Service(place.broker, authorizer=Only("mine"))
    place.new_capture()
    plain, headed = message("a.b", b"1", "r.1"), message("a.b", b"2", "r.2", {"x": "y"})
    place.take(plain, headed, message("a.c", b"3", "r.3"))
    answers = place.settle()
    refused = [(reply, answer["error"]) for reply, answer in answers if "error" in answer]
    assert [reply for reply, _ in refused] == ["r.1", "r.2"]
    assert {error["code"] for _, error in refused} == {403}
    assert all("not authorized to WRITE on topic theirs" in error["description"] for _, error in refused)
    assert [answer["seq"] for _, answer in answers if "error" not in answer] == [1, 2, 3]
    assert stored(place, "theirs") == []
    assert stored(place, "mine") == [b"1", b"2", b"3"]


def test_messages_wait_for_the_streams_of_their_subject_and_keep_their_order() -> None:
    place = Place()
    place.create("s", "a.>")
    later = Later(StreamResolver(place.broker.streams))
    place.service = Service(place.broker, resolver=later)
    capture, resumed = place.new_capture(), []
    capture.on_resolved = lambda: resumed.append(True)
    place.take(message("a.b", b"1", "r.1"), message("a.c", b"2", "r.2"))
    place.take(message("a.b", b"3", "r.3"))
    assert capture.waits
    assert not capture.idle
    assert place.settle() == []
    later.waiting.pop()()  # of a.b: then a.c is asked for
    assert capture.waits
    assert not resumed
    later.waiting.pop()()
    assert resumed == [True]
    place.settle()
    assert stored(place, "s") == [b"1", b"2", b"3"]


def test_a_subject_that_does_not_resolve_in_time_is_answered_so() -> None:
    place = Place()
    place.create("s", "a")
    later = Later(StreamResolver(place.broker.streams))
    place.service = Service(place.broker, resolver=later)
    place.new_capture()
    place.take(message("a", b"1", "r.1"))
    place.clock.advance(5_000)
    place.broker.fire()
    ((_, answer),) = place.settle()
    assert answer["error"]["code"] == 503
    place.take(message("a", b"2", "r.2"))
    later.waiting.pop()()
    place.settle()
    assert stored(place, "s") == [b"2"]
