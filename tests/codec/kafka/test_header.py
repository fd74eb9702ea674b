"""Frames' headers against kafka-python's, and against bytes that are none."""

import contextlib
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codec.kafka.oracles import kafka_python_class
from tests.codec.kafka.specification import NOT_CARRIED, flexible
from tests.untyped import untyped

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka import header
from duramen.codec.kafka.header import RequestHeader, read_request_header
from duramen.codec.kafka.versions import APIS, Api, ApiKey
from duramen.codec.varint import encode_uvarint

VERSIONS = [
    (api, version) for api in APIS.values() if api.key not in NOT_CARRIED for version in range(api.low, api.high + 1)
]
CORRELATIONS = st.integers(-(1 << 31), (1 << 31) - 1)

kafka_python = untyped("kafka.protocol.api_header")


@given(st.sampled_from(VERSIONS), CORRELATIONS, st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_requests_as_kafka_python_writes_and_reads_them(spoken: tuple[Api, int], correlation: int, name: str) -> None:
    api, version = spoken
    frame = header.encode_request(api.key, version, correlation, name, b"body")
    tagged = version in flexible(api, "request")
    theirs = kafka_python.RequestHeader(
        request_api_key=int(api.key), request_api_version=version, correlation_id=correlation, client_id=name
    ).encode(flexible=tagged)
    assert frame == (len(theirs) + 4).to_bytes(4, "big") + theirs + b"body"
    assert read_request_header(frame[4:]) == RequestHeader(api.key, version, correlation, name, len(theirs))


@given(st.sampled_from(VERSIONS), CORRELATIONS)
def test_responses_as_kafka_python_reads_them(spoken: tuple[Api, int], correlation: int) -> None:
    api, version = spoken
    frame = header.encode_response(api.key, version, correlation, b"body")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    source = BytesIO(frame[4:])
    assert kafka_python_class(api.key, "response").parse_header(source, version=version).correlation_id == correlation
    assert source.read() == b"body"
    assert frame[4 + header.response_body_start(api.key, version, frame[4:]) :] == b"body"


def test_no_client_id_is_told_from_an_empty_one() -> None:
    fixed = b"\0\x03\0\x01\0\0\0\x07"
    assert read_request_header(fixed + b"\xff\xff") == RequestHeader(3, 1, 7, None, 10)
    assert read_request_header(fixed + b"\0\0") == RequestHeader(3, 1, 7, "", 10)


def test_a_long_client_id_is_cut() -> None:
    frame = header.encode_request(ApiKey.METADATA, 1, 7, "x" * 30_000, b"body")[4:]
    found = read_request_header(frame)
    assert found.client_id == "x" * 255
    assert frame[found.end :] == b"body"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(7),
        b"\0\x03\0\x01\0\0\0\x07",  # no client id
        b"\0\x03\0\x01\0\0\0\x07\0\x05abc",  # a client id that is cut off
        b"\0\x03\0\x09\0\0\0\x07\0\0",  # no tagged fields where there have to be some
        b"\0\x03\0\x09\0\0\0\x07\0\0\x01\x05\x7f",  # a tagged field that is cut off
        b"\0\x03\0\x09\0\0\0\x07\0\0" + encode_uvarint(1 << 40),  # a count that lies
        b"\0\x03\0\x09\0\0\0\x07\0\0" + encode_uvarint(1000) + bytes(2000),  # more tagged fields than anybody has
    ],
)
def test_damaged(frame: bytes) -> None:
    with pytest.raises(RequestInvalid):
        read_request_header(frame)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\x07\x00"
    found = read_request_header(b"\0\x03\0\x09\0\0\0\x07\0\x02me" + tags + b"body")
    assert (found.client_id, found.end) == ("me", 12 + len(tags))


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (-1, 0), (3, 99), (3, -1)])
def test_of_what_is_not_known_only_the_fixed_part_is_read(api_key: int, version: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x01\xff"
    assert read_request_header(frame) == RequestHeader(api_key, version, 1, None, 8)


@given(st.binary(max_size=60))
def test_arbitrary_bytes(data: bytes) -> None:
    with contextlib.suppress(RequestInvalid):
        assert read_request_header(data).end <= len(data)
