"""Producers that wrote to a stream may go on in a new one of its name: which ids those are, and for how long."""

from uuid import UUID

from duramen.metadata.decisions import Definition, allocate_producer_ids, create_stream, delete_stream
from duramen.metadata.events import Event, StreamCreated, decode_event, encode_event
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState

DAY_MS = 86_400_000


class Machine:
    """A state, and what is decided about it."""

    def __init__(self) -> None:
        self.state = ControllerState()
        self._ids = iter(range(1, 1 << 20))

    def apply(self, *events: Event) -> None:
        for event in events:
            self.state.apply(decode_event(encode_event(event)))

    def create(self, name: str, now_ms: int) -> int:
        """Which producers the new stream may have forgotten."""
        stream_id = UUID(int=next(self._ids))
        self.apply(*create_stream(self.state, Definition(name, 1), stream_id=stream_id, now_ms=now_ms))
        return self.state.streams[name].forgotten_producer_id

    def delete(self, name: str, now_ms: int) -> None:
        self.apply(*delete_stream(self.state, name, now_ms=now_ms, producers_ms=DAY_MS))

    def snapshot(self) -> None:
        self.state = decode_snapshot(encode_snapshot(self.state))


def test_a_new_name_has_forgotten_nobody() -> None:
    machine = Machine()
    machine.apply(*allocate_producer_ids(machine.state))
    assert machine.create("a", 0) == -1


def test_a_name_that_was_deleted_within_the_time_has_forgotten_all_that_were_made() -> None:
    machine = Machine()
    machine.apply(*allocate_producer_ids(machine.state))
    machine.create("a", 0)
    machine.delete("a", 1000)
    machine.snapshot()
    assert machine.create("b", 2000) == -1
    assert machine.create("a", DAY_MS + 999) == 1000
    machine.apply(*allocate_producer_ids(machine.state))
    machine.snapshot()
    assert machine.state.streams["a"].forgotten_producer_id == 1000


def test_a_name_that_was_deleted_long_ago_has_forgotten_nobody() -> None:
    machine = Machine()
    machine.apply(*allocate_producer_ids(machine.state))
    machine.create("a", 0)
    machine.delete("a", 1000)
    assert machine.create("a", DAY_MS + 1000) == -1


def test_of_very_many_names_it_is_remembered_that_there_were_some() -> None:
    machine = Machine()
    machine.apply(*allocate_producer_ids(machine.state))
    for number in range(10_002):
        machine.create(f"s{number}", 0)
        machine.delete(f"s{number}", number)
    machine.snapshot()
    assert machine.create("s0", 20_000) == 1000
    assert machine.create("other", DAY_MS) == 1000
    assert machine.create("another", DAY_MS + 1) == -1
    assert len(machine.state.deleted_names[0]) == 10_000
    machine.create("late", 0)
    machine.delete("late", 2 * DAY_MS)
    assert list(machine.state.deleted_names[0]) == ["late"]


def test_of_a_stream_that_an_older_version_made_nobody_knows() -> None:
    machine = Machine()
    machine.apply(*allocate_producer_ids(machine.state))
    old = b'{"event":"stream-created","name":"a","id":"%s","partitions":1}' % str(UUID(int=1)).encode()
    event = decode_event(old)
    assert isinstance(event, StreamCreated)
    machine.apply(event)
    assert machine.state.streams["a"].forgotten_producer_id == 1000
