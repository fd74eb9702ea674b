"""Two other implementations of Kafka's messages: kafka-python's, and kio's, which must only see bytes we made."""

from functools import cache
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.untyped import untyped

__all__ = ["kafka_python_class", "through_kafka_python", "through_kio", "written_by_kafka_python"]

_MODULES = ("consumer", "admin", "metadata", "producer")


@cache
def _classes() -> dict[tuple[int, str], Any]:
    base = untyped("kafka.protocol.api_message").ApiMessage
    for module in _MODULES:
        untyped(f"kafka.protocol.{module}")
    found, seen = {}, [base]
    while seen:
        for known in seen.pop().__subclasses__():
            seen.append(known)
            if known.json and known._class_version is None:
                found[(known.API_KEY, known.type)] = known
    return found


def kafka_python_class(api_key: int, kind: str) -> Any:
    """kafka-python's class of a request or response."""
    return _classes()[(api_key, kind)]


def through_kafka_python(api_key: int, kind: str, version: int, data: bytes) -> tuple[Any, bytes]:
    """What kafka-python reads in `data`, and what it writes for that."""
    read = kafka_python_class(api_key, kind).decode(data, version=version)
    read._header = None  # it forgets to set this itself
    return read, bytes(read.encode(version=version))


def through_kio(api_key: int, kind: str, version: int, data: bytes) -> bytes:
    """What kio writes for what it reads in `data`."""
    load = load_request_schema if kind == "request" else load_response_schema
    entity: Any = load(api_key, version)
    read, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    out = BytesIO()
    entity_writer(entity)(out, read)
    return out.getvalue()


def written_by_kafka_python(api_key: int, kind: str, version: int, message: dict[str, Any]) -> bytes:
    """The bytes that kafka-python makes of a message given as plain values."""
    known = kafka_python_class(api_key, kind)
    whole = known(version=version, **_fields(known, version, message))
    return bytes(whole.encode(version=version))


def _fields(known: Any, version: int, message: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(known._struct.fields[name], version, value) for name, value in message.items()}


def _value(field: Any, version: int, value: Any) -> Any:
    if field.is_struct_array() and value is not None:
        inner = field.data_class
        return [inner(version=version, **_fields(inner, version, element)) for element in value]
    if field.is_struct():
        inner = field.data_class
        return inner(version=version, **_fields(inner, version, value))
    return value
