"""Every message in every version: round trips, Kafka's specifications, two other implementations, hostile bytes."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.kafka.oracles import through_kafka_python, through_kio
from tests.codec.kafka.specification import (
    BY_HAND,
    NOT_CARRIED,
    drawn,
    every_message,
    flexible,
    specification,
    versions_of,
)
from tests.examples import examples
from tests.mutation import mutate

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import LARGEST_ELEMENTS, Schema
from duramen.codec.kafka.versions import APIS, Api
from duramen.codec.varint import encode_uvarint

MESSAGES = [(api, kind, version) for api, kind, version in every_message() if api.key not in BY_HAND]
NAMES = [f"{api.key.name.lower()} {kind} {version}" for api, kind, version in MESSAGES]
EVERY_MESSAGE = pytest.mark.parametrize(("api", "kind", "version"), MESSAGES, ids=NAMES)


def schema(api: Api, kind: str) -> Schema:
    """Our table for a message."""
    return (REQUESTS if kind == "request" else RESPONSES)[api.key]


def plain(value: Any) -> Any:
    """A message as both libraries would show it: lists for sequences, bytes for views."""
    if isinstance(value, dict):
        return {_renamed(name): plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def _renamed(name: str) -> str:
    # kafka-python's one name for what the specification calls by three.
    return "authorized_operations" if name.endswith("_authorized_operations") and "include" not in name else name


def included(message: Any, given: Any) -> Any:
    """What of a decoded message stands in the fields of `given`."""
    if isinstance(given, dict):
        return {name: included(message[name], value) for name, value in given.items()}
    if isinstance(given, list):
        return [included(element, value) for element, value in zip(message, given, strict=True)]
    return message


def without_operations(message: Any) -> Any:
    """Without the bit fields, which kafka-python turns into sets."""
    if isinstance(message, dict):
        return {name: without_operations(value) for name, value in message.items() if name != "authorized_operations"}
    return [without_operations(value) for value in message] if isinstance(message, list) else message


def test_every_version_is_specified() -> None:
    """A version that Kafka's specification does not know is one that nobody speaks (Produce below 3 apart)."""
    for api in APIS.values():
        for kind in ("request", "response") if api.key not in NOT_CARRIED else ():
            valid = versions_of(specification(api, kind)["validVersions"])
            assert api.high in valid
            assert api.low in valid or api.key in BY_HAND
            assert flexible(api, kind).start == api.flexible or (not flexible(api, kind) and api.high < api.flexible)


@EVERY_MESSAGE
@settings(max_examples=examples(20))
@given(data=st.data())
def test_round_trip_and_both_ways_with_two_other_implementations(
    api: Api, kind: str, version: int, data: st.DataObject
) -> None:
    message = data.draw(drawn(api, kind, version))
    table = schema(api, kind)
    encoded = table.encode(version, message)
    decoded = table.decode(version, encoded)
    assert included(plain(decoded), plain(message)) == plain(message)
    assert table.encode(version, decoded) == encoded

    theirs, written = through_kafka_python(api.key, kind, version, encoded)
    assert without_operations(plain(theirs.to_dict(json=False))) == without_operations(plain(message))
    assert plain(table.decode(version, written)) == plain(decoded)

    assert plain(table.decode(version, through_kio(api.key, kind, version, encoded))) == plain(decoded)


@pytest.mark.parametrize(
    ("api", "version"), [(api, version) for api, kind, version in MESSAGES if kind == "response"], ids=str
)
def test_fields_left_out_of_an_answer_have_their_defaults(api: Api, version: int) -> None:
    table = RESPONSES[api.key]
    encoded = table.encode(version, {})
    theirs, _ = through_kafka_python(api.key, "response", version, encoded)
    decoded = plain(table.decode(version, encoded))
    expected = without_operations(plain(theirs.to_dict(json=False)))
    assert without_operations(included(decoded, expected)) == expected


@settings(max_examples=examples(300))
@given(data=st.data(), junk=st.binary(max_size=60))
def test_arbitrary_bytes_are_a_message_or_refused(data: st.DataObject, junk: bytes) -> None:
    api, kind, version = data.draw(st.sampled_from(MESSAGES))
    with contextlib.suppress(RequestInvalid):
        schema(api, kind).decode(version, junk)


@settings(max_examples=examples(400))
@given(data=st.data())
def test_mutated_messages_are_messages_or_refused(data: st.DataObject) -> None:
    api, kind, version = data.draw(st.sampled_from(MESSAGES))
    table = schema(api, kind)
    encoded = bytearray(table.encode(version, data.draw(drawn(api, kind, version))))
    chance = random.Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(chance.randint(1, 4)):
        mutate(encoded, chance)
    with contextlib.suppress(RequestInvalid):
        decoded = table.decode(version, encoded)
        # What was let in can be written: nothing in it is out of range.
        table.decode(version, table.encode(version, decoded))


# -- counts and lengths that lie ----------------------------------------------------------------------

NESTED = Schema(
    "nested",
    1,
    """
    groups []
      name string
      numbers []int32
    note string?
    """,
)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("count", [1, 3, 1000, 1 << 20, (1 << 31) - 1])
def test_a_count_is_held_against_the_bytes_left(version: int, count: int) -> None:
    head = count.to_bytes(4, "big") if version == 0 else encode_uvarint(count + 1)
    with pytest.raises(RequestInvalid, match="damaged"):
        NESTED.decode(version, head + b"\0\0")


def test_all_arrays_of_a_message_together_are_bounded() -> None:
    rows = LARGEST_ELEMENTS // 100 + 1
    row = encode_uvarint(2) + b"n" + encode_uvarint(101) + bytes(400) + b"\0"
    data = encode_uvarint(rows + 1) + row * rows + b"\0\0"
    with pytest.raises(RequestInvalid, match="cannot have"):
        NESTED.decode(1, data)


@pytest.mark.parametrize("length", [0x8000, 1 << 20])
def test_a_string_is_never_longer_than_its_old_form_could_be(length: int) -> None:
    data = b"\x01" + encode_uvarint(length + 1) + b"x" * length + b"\0"
    with pytest.raises(RequestInvalid, match="note"):
        NESTED.decode(1, data)
    with pytest.raises(RequestInvalid, match="note"):
        NESTED.encode(1, {"note": "x" * length})


def test_text_is_utf_8() -> None:
    with pytest.raises(RequestInvalid):
        NESTED.decode(0, b"\0\0\0\0\0\x02\xc3\x28")
