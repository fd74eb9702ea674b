"""Kafka's own message specifications, as kafka-python's package carries them, and messages drawn from them.

So what our tables must be able to say comes from another source than the tables.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from hypothesis import strategies as st
from tests.untyped import untyped

from duramen.codec.kafka.tables import shares
from duramen.codec.kafka.versions import APIS, Api, ApiKey

__all__ = ["BY_HAND", "KINDS", "NOT_CARRIED", "drawn", "flexible", "snake", "specification", "versions_of"]

KINDS: Final = ("request", "response")
BY_HAND: Final = (ApiKey.PRODUCE, ApiKey.FETCH)
NOT_CARRIED: Final = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.UNREGISTER_BROKER, ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER, *shares.REQUESTS, ApiKey.BEGIN_BATCH, ApiKey.DECIDE_BATCH,
)  # fmt: skip
"""What kafka-python's package says nothing about: held against kio in tests of its own, or Duramen's own."""
_NO_OPERATIONS: Final = -2147483648

_LATEST_MS: Final = 1 << 47
_INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ERRORS: Final = st.sampled_from([-1, 0, 1, 3, 6, 16, 25, 27, 36, 79, 82, 100])
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@cache
def _specifications() -> dict[tuple[int, str], dict[str, Any]]:
    found = {}
    for entry in files(untyped("kafka.protocol.schemas.resources")).iterdir():
        if entry.name.endswith(".json"):
            lines = entry.read_text().splitlines()
            message = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
            if "apiKey" in message:
                _unfold(message["fields"], {one["name"]: one["fields"] for one in message.get("commonStructs", [])})
                found[(message["apiKey"], message["type"])] = message
    return found


def _unfold(fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]]) -> None:
    """Put structures that several fields share where they are used."""
    for field in fields:
        shared = common.get(field["type"].removeprefix("[]"))
        if shared is not None:
            field["fields"] = shared
        _unfold(field.get("fields", []), common)


def specification(api: Api, kind: str) -> dict[str, Any]:
    """The specification of a request or response."""
    return _specifications()[(int(api.key), kind)]


def versions_of(text: str) -> range:
    """`3+`, `0-7`, `3` or `none` as a range."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), 1 << 15)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def flexible(api: Api, kind: str) -> range:
    """The versions with compact lengths and tagged fields."""
    return versions_of(specification(api, kind)["flexibleVersions"])


def snake(name: str) -> str:
    """`maxWaitMs` as `max_wait_ms`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def drawn(api: Api, kind: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of that version, every field that it has included."""
    messages = _structure(specification(api, kind)["fields"], version)
    if api.key is ApiKey.API_VERSIONS and kind == "response":
        # With an error it is version 0 whatever was asked for, and other libraries read it so.
        return messages.map(lambda message: message | {"error_code": 0})
    return messages


def _structure(fields: list[dict[str, Any]], version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {snake(field["name"]): _field(field, version) for field in fields if version in versions_of(field["versions"])}
    )


def _field(field: dict[str, Any], version: int) -> st.SearchStrategy[Any]:
    kind = field["type"]
    if kind.startswith("[]"):
        element = _structure(field["fields"], version) if "fields" in field else _basic(kind[2:], field)
        values: st.SearchStrategy[Any] = st.lists(element, max_size=3)
    else:
        values = _structure(field["fields"], version) if "fields" in field else _basic(kind, field)
    return st.none() | values if version in versions_of(field.get("nullableVersions", "none")) else values


def _basic(kind: str, field: dict[str, Any]) -> st.SearchStrategy[Any]:
    name = snake(field["name"])
    if name.endswith("error_code"):
        return _ERRORS
    if name.endswith("authorized_operations") and kind == "int32":
        return st.just(_NO_OPERATIONS)
    if kind in _INTEGERS:
        if name == "transaction_start_time_ms":
            return st.integers(0, _LATEST_MS)  # kio makes a date of it
        # kio has no durations of more than 50 bits.
        bound = 1 << min(_INTEGERS[kind] - 1, 50 if name.endswith("_ms") else 63)
        return st.integers(-bound, bound - 1)
    others: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "uint16": st.integers(0, (1 << 16) - 1),
        "string": _TEXT,
        "bytes": st.binary(max_size=20),
        "records": st.binary(max_size=20),
        "uuid": st.uuids(),
        "float64": st.floats(allow_nan=False),
    }
    return others[kind]


def every_message() -> list[tuple[Api, str, int]]:
    """Each API, kind and version that Duramen speaks and the specification describes."""
    return [
        (api, kind, version)
        for api in APIS.values()
        if api.key not in NOT_CARRIED
        for kind in KINDS
        for version in range(api.low, api.high + 1)
        if version in versions_of(specification(api, kind)["validVersions"])
    ]
