"""Decisions and the state they add up to, held against a dictionary, and against their own log read again."""

from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples

from duramen.base.errors import (
    ConfigInvalid,
    NameInvalid,
    PartitionsInvalid,
    RequestInvalid,
    StreamDiffers,
    StreamExists,
    StreamNotFound,
)
from duramen.metadata.decisions import (
    PRODUCER_ID_BLOCK,
    Definition,
    add_partitions,
    allocate_producer_ids,
    configure_stream,
    create_stream,
    delete_stream,
)
from duramen.metadata.events import Event, NodeRegistered, decode_event, encode_event
from duramen.metadata.state import STREAM_SIZE, ControllerState

NAMES = st.sampled_from(["flights", "a.b", "a_b", "a-b", "weather"])
COUNTS = st.integers(1, 40)
CONFIGS = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.bytes"]), st.integers(1000, 1003).map(str), max_size=2
)
LARGEST_SIZE = 80


class MetadataMachine(RuleBasedStateMachine):
    """Streams come, grow, change and go."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ControllerState()
        self.log: list[bytes] = []
        self.model: dict[str, tuple[int, dict[str, str], UUID]] = {}
        self.ids: set[UUID] = set()
        self.producer_ids: list[int] = []

    def _commit(self, events: list[Event]) -> None:
        for event in events:
            self.log.append(encode_event(event))
            self.state.apply(event)

    @property
    def _size(self) -> int:
        return sum(partitions + STREAM_SIZE for partitions, _, _ in self.model.values())

    @rule(name=NAMES, partitions=COUNTS, config=CONFIGS, idempotent=st.booleans(), stream_id=st.uuids(version=4))
    def create(self, name: str, partitions: int, config: dict[str, str], idempotent: bool, stream_id: UUID) -> None:
        if stream_id in self.ids:
            return
        wish = Definition(name, partitions, config)
        expected: type[Exception] | None = None
        known = self.model.get(name)
        if known is not None and not idempotent:
            expected = StreamExists
        elif known is not None and known[:2] != (partitions, config):
            expected = StreamDiffers
        elif known is None and any(
            other != name and other.replace(".", "_") == name.replace(".", "_") for other in self.model
        ):
            expected = NameInvalid
        elif known is None and self._size + partitions + STREAM_SIZE > LARGEST_SIZE:
            expected = PartitionsInvalid

        def decide() -> list[Event]:
            return list(
                create_stream(
                    self.state, wish, stream_id=stream_id, now_ms=7, idempotent=idempotent, largest_size=LARGEST_SIZE
                )
            )

        if expected is not None:
            with pytest.raises(expected):
                decide()
            return
        events = decide()
        assert bool(events) == (known is None)
        self._commit(events)
        if known is None:
            self.model[name] = (partitions, config, stream_id)
            self.ids.add(stream_id)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name not in self.model:
            with pytest.raises(StreamNotFound):
                delete_stream(self.state, name, now_ms=0, producers_ms=0)
            return
        self._commit(list(delete_stream(self.state, name, now_ms=0, producers_ms=0)))
        del self.model[name]

    @rule(name=NAMES, partitions=COUNTS)
    def grow(self, name: str, partitions: int) -> None:
        known = self.model.get(name)
        if known is None:
            with pytest.raises(StreamNotFound):
                add_partitions(self.state, name, partitions)
        elif partitions <= known[0] or self._size + partitions - known[0] > LARGEST_SIZE:
            with pytest.raises(PartitionsInvalid):
                add_partitions(self.state, name, partitions, largest_size=LARGEST_SIZE)
        else:
            self._commit(list(add_partitions(self.state, name, partitions, largest_size=LARGEST_SIZE)))
            self.model[name] = (partitions, *known[1:])

    @rule(name=NAMES, config=CONFIGS, reset=st.lists(st.sampled_from(["retention.ms", "segment.bytes"]), max_size=1))
    def configure(self, name: str, config: dict[str, str], reset: list[str]) -> None:
        changes = {**config, **dict.fromkeys(reset)}
        known = self.model.get(name)
        if known is None:
            with pytest.raises(StreamNotFound):
                configure_stream(self.state, name, changes)
            return
        wanted = {key: value for key, value in {**known[1], **changes}.items() if value is not None}
        events = configure_stream(self.state, name, changes)
        assert bool(events) == (wanted != known[1])
        self._commit(list(events))
        self.model[name] = (known[0], wanted, known[2])

    @rule(name=NAMES)
    def configure_wrongly(self, name: str) -> None:
        if name in self.model:
            for changes in ({"retention.mss": "1"}, {"retention.ms": "soon"}, {"no.such": None}):
                with pytest.raises(ConfigInvalid):
                    configure_stream(self.state, name, changes)

    @rule()
    def allocate(self) -> None:
        (event,) = allocate_producer_ids(self.state)
        assert event.count == PRODUCER_ID_BLOCK
        assert not self.producer_ids or event.first > self.producer_ids[-1]
        self.producer_ids += [event.first, event.first + event.count - 1]
        self._commit([event])

    @invariant()
    def state_is_what_the_model_says(self) -> None:
        self._check(self.state)

    @invariant()
    def the_log_read_again_and_a_copy_say_the_same(self) -> None:
        again = ControllerState()
        for value in self.log:
            again.apply(decode_event(value))
        self._check(again)
        self._check(self.state.copy())

    def _check(self, state: ControllerState) -> None:
        assert {
            name: (stream.partitions, dict(stream.config), stream.id) for name, stream in state.streams.items()
        } == self.model
        assert state.size == self._size
        assert all(state.stream_by_id(stream.id) is stream for stream in state.streams.values())
        gone = self.ids - {stream_id for _, _, stream_id in self.model.values()}
        assert all(state.stream_by_id(stream_id) is None for stream_id in gone)
        assert state.next_producer_id == (self.producer_ids[-1] + 1 if self.producer_ids else 1)


MetadataMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=30)
TestMetadata = MetadataMachine.TestCase


def test_a_copy_goes_its_own_way() -> None:
    state = ControllerState()
    created = create_stream(state, Definition("a", 1), stream_id=UUID(int=5), now_ms=0)
    copy = state.copy()
    for event in created:
        copy.apply(event)
    copy.apply(NodeRegistered(1, "directory"))
    assert (len(state.streams), len(state.nodes), state.size) == (0, 0, 0)
    assert copy.nodes == {1: "directory"}


def test_events_about_what_is_gone_change_nothing() -> None:
    state = ControllerState()
    events: list[Event] = list(create_stream(state, Definition("a", 2), stream_id=UUID(int=5), now_ms=0))
    state.apply(events[0])
    late: list[Event] = [*add_partitions(state, "a", 3), *configure_stream(state, "a", {"retention.ms": "1"})]
    late += delete_stream(state, "a", now_ms=0, producers_ms=0) * 2
    for event in (late[2], *late):
        state.apply(event)
    assert (dict(state.streams), state.size) == ({}, 0)


def test_the_broker_s_own_streams_are_not_counted_against_others_nor_changed() -> None:
    state = ControllerState()
    own = Definition("__consumer_offsets", 50, internal=True)
    for event in create_stream(state, own, stream_id=UUID(int=5), now_ms=0, largest_size=1):
        state.apply(event)
    assert state.streams["__consumer_offsets"].internal
    for decide in (
        lambda: delete_stream(state, own.name, now_ms=0, producers_ms=0),
        lambda: add_partitions(state, own.name, 60),
        lambda: configure_stream(state, own.name, {"durability": "memory"}),
    ):
        with pytest.raises(RequestInvalid, match="own"):
            decide()
