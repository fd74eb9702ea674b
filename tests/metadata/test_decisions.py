"""Names, counts and configs that streams may and may not have."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from duramen.base.errors import BatchCorrupt, ConfigInvalid, NameInvalid, PartitionsInvalid, SubjectInvalid
from duramen.metadata.decisions import (
    LARGEST_PARTITIONS,
    LONGEST_SUBJECT_BYTES,
    Definition,
    check_config,
    check_name,
    check_subject,
    create_stream,
    wide_subjects,
)
from duramen.metadata.events import (
    ClusterFormed,
    Endpoint,
    Event,
    FeatureLevelChanged,
    NodeDraining,
    NodeFenced,
    NodeRegistered,
    NodeUnfenced,
    NodeUnregistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    StreamConfigured,
    StreamCreated,
    StreamDeleted,
    decode_event,
    encode_event,
)
from duramen.metadata.state import ControllerState

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
INTEGERS = st.integers(0, 1 << 40)
MEMBERS = st.just(UNSET) | st.lists(INTEGERS, max_size=3).map(tuple)
EVENTS = st.one_of(
    st.builds(NodeRegistered, INTEGERS, TEXT),
    st.builds(
        NodeRegistered, INTEGERS, TEXT, TEXT, INTEGERS, st.none() | TEXT, st.lists(TEXT).map(tuple),
        st.lists(st.builds(Endpoint, TEXT, TEXT, INTEGERS)).map(tuple), INTEGERS, INTEGERS, st.booleans(),
    ),
    st.sampled_from([NodeFenced, NodeUnfenced, NodeDraining, NodeUnregistered]).flatmap(
        lambda kind: st.builds(kind, INTEGERS, INTEGERS)
    ),
    st.builds(ClusterFormed, TEXT),
    st.builds(FeatureLevelChanged, INTEGERS),
    st.builds(
        PartitionChanged, TEXT, INTEGERS, INTEGERS, st.just(UNSET) | st.none() | INTEGERS, st.just(UNSET) | INTEGERS,
        MEMBERS, MEMBERS, MEMBERS, MEMBERS, MEMBERS, MEMBERS, st.booleans(),
    ),
    st.builds(
        StreamCreated, TEXT, TEXT, INTEGERS, st.dictionaries(TEXT, TEXT), st.lists(TEXT).map(tuple), st.booleans(),
        INTEGERS,
    ),
    st.builds(PartitionsAdded, TEXT, INTEGERS),
    st.builds(StreamConfigured, TEXT, st.dictionaries(TEXT, TEXT)),
    st.builds(StreamDeleted, TEXT),
    st.builds(ProducerIdsAllocated, INTEGERS, INTEGERS),
)  # fmt: skip


@given(EVENTS)
def test_events_are_read_as_they_were_written(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_a_node_that_is_alone_writes_what_it_always_wrote() -> None:
    assert encode_event(NodeRegistered(1, "d")) == b'{"event":"node-registered","node_id":1,"directory_id":"d"}'


def test_a_change_of_a_partition_says_what_changes_and_no_more() -> None:
    change = PartitionChanged("s", 0, 3, leader=None, isr=())
    assert encode_event(change) == (
        b'{"event":"partition-changed","id":"s","partition":0,"partition_epoch":3,"leader":null,"isr":[]}'
    )


@pytest.mark.parametrize("value", [b"", b"{}", b'{"event":"stream-exploded"}', b'{"event":"stream-deleted"}', b"\xff"])
def test_an_event_that_is_none_is_damage(value: bytes) -> None:
    with pytest.raises(BatchCorrupt):
        decode_event(value)


def test_an_event_with_a_field_of_the_future_is_read() -> None:
    assert decode_event(b'{"event":"stream-deleted","id":"x","why":"tidy"}') == StreamDeleted("x")


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..a", "__mine", "-", "_"])
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0", "*"])
def test_names_that_kafka_does_not_take(name: str) -> None:
    with pytest.raises(NameInvalid):
        check_name(name)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__mine", "__"])
def test_names_that_are_the_broker_s_own(name: str) -> None:
    state = ControllerState()
    for idempotent in (False, True):
        with pytest.raises(NameInvalid, match="own"):
            create_stream(state, Definition(name, 1), stream_id=UUID(int=1), now_ms=0, idempotent=idempotent)
    assert create_stream(state, Definition(name, 1, internal=True), stream_id=UUID(int=1), now_ms=0)


@pytest.mark.parametrize("partitions", [0, -1, -(1 << 31), LARGEST_PARTITIONS + 1, (1 << 31) - 1])
def test_counts_that_cannot_be(partitions: int) -> None:
    with pytest.raises(PartitionsInvalid, match=str(partitions)):
        create_stream(ControllerState(), Definition("a", partitions), stream_id=UUID(int=1), now_ms=0)


def test_a_count_that_memory_is_too_small_for_says_what_to_do() -> None:
    with pytest.raises(PartitionsInvalid, match=r"memory\.limit\.bytes"):
        create_stream(ControllerState(), Definition("a", 9), stream_id=UUID(int=1), now_ms=0, largest_size=11)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", "7d", 604_800_000),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "delete,compact", "compact,delete"),
        ("message.timestamp.type", "logappendtime", "LogAppendTime"),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("compression.type", "lz4", "lz4"),
        ("segment.bytes", "64MiB", 64 << 20),
    ],
)
def test_configs(name: str, text: str, value: object) -> None:
    assert check_config({name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("retention", "1", "did you mean"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "", "a time"),
        ("segment.bytes", "13", "at least 14"),
        ("segment.bytes", "99999999999", "at most"),
        ("segment.bytes", "9" * 5000, "must be"),
        ("cleanup.policy", "shred", "any of compact, delete"),
        ("preallocate", "maybe", "true or false"),
        ("compression.type", "brotli", "one of"),
    ],
)
def test_configs_that_do_not_fit_say_what_would(name: str, text: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=hint) as raised:
        check_config({name: text})
    assert name in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("subject", ["a", "a.b", "*", ">", "a.*.c", "a.>", "flights.JFK", "ä.ö"])
def test_subjects(subject: str) -> None:
    check_subject(subject)


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "a b", "a.>.b", "a>", "a.b*", "a\tb", "a\0b"])
def test_subjects_that_nats_does_not_take(subject: str) -> None:
    with pytest.raises(SubjectInvalid):
        check_subject(subject)


@pytest.mark.parametrize("letter", ["x", "ä"])
def test_a_subject_has_a_largest_size(letter: str) -> None:
    longest = letter * (LONGEST_SUBJECT_BYTES // len(letter.encode()))
    check_subject(longest)
    with pytest.raises(SubjectInvalid, match="1024 at most") as raised:
        check_subject(longest + letter)
    assert len(str(raised.value)) < 200


def test_wide_subjects() -> None:
    assert wide_subjects(["a.>", ">", "*.b", "a.*"]) == [">", "*.b"]
