"""Records as text, JSON and raw: what is printed is read again."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import InputInvalid
from duramen.cli.records.formats import JSON, RAW, TEXT, ProducedRecord, parser, printer
from duramen.codec.batch import DecodedRecord

BYTES = st.binary(max_size=30) | st.text(max_size=20).map(str.encode)
RECORDS = st.builds(
    DecodedRecord,
    st.integers(0, (1 << 63) - 1),
    st.integers(-1, (1 << 63) - 1),
    st.none() | BYTES,
    st.none() | BYTES,
    st.lists(st.tuples(BYTES, st.none() | BYTES), max_size=4).map(tuple),
)


@given(RECORDS, st.integers(0, (1 << 31) - 1))
def test_json_says_everything_in_one_line(record: DecodedRecord, partition: int) -> None:
    line = printer(JSON, None)("s", partition, record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert list(json.loads(line)) == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    entry = parser(JSON, None)(line[:-1])
    assert entry._replace(headers=tuple(entry.headers)) == ProducedRecord(
        record.value, record.key, record.headers, partition, record.timestamp
    )


@given(BYTES.filter(lambda key: b"::" not in key and not key.endswith(b":")), BYTES)
def test_text_with_keys_is_read_as_it_was_printed(key: bytes, value: bytes) -> None:
    line = printer(TEXT, b"::")("s", 0, DecodedRecord(0, 0, key, value, ()))
    assert parser(TEXT, b"::")(line[:-1]) == ProducedRecord(value, key)


def test_text_and_raw() -> None:
    record, empty = DecodedRecord(0, 0, b"k", b"v", ()), DecodedRecord(0, 0, None, None, ())
    assert [printer(TEXT, None)("s", 0, one) for one in (record, empty)] == [b"v\n", b"\n"]
    assert [printer(TEXT, b"=")("s", 0, one) for one in (record, empty)] == [b"k=v\n", b"\n"]
    assert [printer(RAW, None)("s", 0, one) for one in (record, empty)] == [b"v", b""]
    assert parser(TEXT, None)(b"a\r") == ProducedRecord(b"a\r")
    assert parser(TEXT, b"=")(b"a=b=c") == ProducedRecord(b"b=c", b"a")
    assert parser(TEXT, b"=")(b"abc") == ProducedRecord(b"abc")


def test_only_the_value_is_needed() -> None:
    read = parser(JSON, None)
    assert read(b'{"value": null}') == ProducedRecord(None)
    assert read(
        b' {"value": "\\u00fc", "key": null, "headers": null, "partition": null, "timestamp": null} '
    ) == ProducedRecord("ü".encode())
    assert read(b'{"topic": 7, "offset": "ignored", "value": {"base64": "/w=="}}') == ProducedRecord(b"\xff")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"hello", "it is not JSON: "),
        (b'{"value": "x"', "it is not JSON: "),
        (b'{"value": "x"} {}', "it is not JSON: "),
        (b'{"value": "\xff"}', "it is not JSON: "),
        (b'{"value": "\\ud800"}', "it is not JSON: "),
        (b"[" * 100_000, "it is not JSON: "),
        (b'["x"]', "it is not a JSON object such as"),
        (b"{}", 'it has no "value"'),
        (b'{"values": "x"}', "'values' is no field of a record; there are partition, timestamp, key, value"),
        (b'{"value": 1}', "\"value\": '1' is not text"),
        (b'{"value": {"base64": "%"}}', "\"value\": '%' is not base64"),
        (b'{"value": "x", "key": ["k"]}', '"key": '),
        (b'{"value": "x", "partition": -1}', "\"partition\": '-1' is not a whole number from 0 to 2147483647"),
        (b'{"value": "x", "partition": true}', '"partition": '),
        (b'{"value": "x", "timestamp": 1.5}', '"timestamp": '),
        (b'{"value": "x", "timestamp": "now"}', '"timestamp": '),
        (b'{"value": "x", "timestamp": 9223372036854775808}', '"timestamp": '),
        (b'{"value": "x", "headers": {"a": "b"}}', '"headers" is not a list such as'),
        (b'{"value": "x", "headers": [["a"]]}', '"headers": "[\'a\']" is not a pair such as'),
        (b'{"value": "x", "headers": [[null, "b"]]}', '"headers": a header has no name'),
        (b'{"value": "x", "headers": [["a", 1]]}', "\"headers\": '1' is not text"),
    ],
)
def test_what_is_no_record_says_why(line: bytes, said: str) -> None:
    with pytest.raises(InputInvalid) as raised:
        parser(JSON, None)(line)
    assert str(raised.value).startswith(said)


@given(st.binary(max_size=50))
def test_noise_is_refused_or_read(line: bytes) -> None:
    with contextlib.suppress(InputInvalid):
        parser(JSON, None)(line)
