"""Record formats of `duramen produce` and `duramen consume`: text, JSON, raw. Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import InputInvalid
from duramen.codec.batch import DecodedRecord, Headers
from duramen.codec.jsonbytes import bytes_of, json_of

__all__ = ["FORMATS", "JSON", "RAW", "TEXT", "Parser", "Printer", "ProducedRecord", "parser", "printer"]

TEXT: Final = "text"
JSON: Final = "json"
RAW: Final = "raw"
FORMATS: Final = (TEXT, JSON, RAW)

_LARGEST_PARTITION: Final = (1 << 31) - 1
_SMALLEST_TIMESTAMP: Final = -(1 << 63)
_LARGEST_TIMESTAMP: Final = (1 << 63) - 1
_FIELDS: Final = ("partition", "timestamp", "key", "value", "headers", "topic", "offset")


class ProducedRecord(NamedTuple):
    """A record to be written; None where the producer decides."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Parser = Callable[[bytes], ProducedRecord]
"""From a line without its end. Raises InputInvalid."""

Printer = Callable[[str, int, DecodedRecord], bytes]
"""From a stream's name, a partition and a record to the printed text, with its line end."""


def parser(format_: str, separator: bytes | None) -> Parser:
    """The parser of lines in that format; with a separator, the text before its first occurrence is the key."""
    if format_ == JSON:
        return _from_json
    if separator is None:
        return ProducedRecord
    between = separator

    def split(line: bytes) -> ProducedRecord:
        key, found, value = line.partition(between)
        return ProducedRecord(value, key) if found else ProducedRecord(line)

    return split


def printer(format_: str, separator: bytes | None) -> Printer:
    """The printer of records in that format; with a separator, text has the key before it."""
    if format_ == JSON:
        return _as_json
    if format_ == RAW:
        return _as_raw
    if separator is None:
        return _as_text
    between = separator

    def with_key(_: str, __: int, record: DecodedRecord) -> bytes:
        value = record.value or b""
        return value + b"\n" if record.key is None else b"%b%b%b\n" % (record.key, between, value)

    return with_key


def _as_text(_: str, __: int, record: DecodedRecord) -> bytes:
    return (record.value or b"") + b"\n"


def _as_raw(_: str, __: int, record: DecodedRecord) -> bytes:
    return record.value or b""


def _as_json(stream: str, partition: int, record: DecodedRecord) -> bytes:
    document = {
        "topic": stream,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": [(json_of(name), json_of(content)) for name, content in record.headers],
    }
    return msgspec.json.encode(document) + b"\n"


def _from_json(line: bytes) -> ProducedRecord:
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputInvalid(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputInvalid('it is not a JSON object such as {"key": "k", "value": "v"}')
    for name in document:
        if name not in _FIELDS:
            raise InputInvalid(f"{name!r} is no field of a record; there are {', '.join(_FIELDS)}")
    if "value" not in document:
        raise InputInvalid('it has no "value"; a record without a value needs "value": null')
    return ProducedRecord(
        _bytes(document, "value"),
        _bytes(document, "key"),
        _headers(document.get("headers")),
        _integer(document, "partition", 0, _LARGEST_PARTITION),
        _integer(document, "timestamp", _SMALLEST_TIMESTAMP, _LARGEST_TIMESTAMP),
    )


def _bytes(document: dict[str, object], name: str) -> bytes | None:
    try:
        return bytes_of(document.get(name))
    except ValueError as error:
        raise InputInvalid(f'"{name}": {error}') from None


def _integer(document: dict[str, object], name: str, low: int, high: int) -> int | None:
    number = document.get(name)
    if number is None:
        return None
    if type(number) is not int or not low <= number <= high:
        raise InputInvalid(f'"{name}": {str(number)[:40]!r} is not a whole number from {low} to {high}')
    return number


def _headers(value: object) -> Headers:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputInvalid('"headers" is not a list such as [["name", "value"]]')
    headers = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise InputInvalid(f'"headers": {str(pair)[:40]!r} is not a pair such as ["name", "value"]')
        try:
            name, content = map(bytes_of, pair)
        except ValueError as error:
            raise InputInvalid(f'"headers": {error}') from None
        if name is None:
            raise InputInvalid('"headers": a header has no name')
        headers.append((name, content))
    return headers
