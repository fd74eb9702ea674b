"""One of the two brokers: raw requests on one connection, and what only this broker knows by what it stands for.

A request names ids by `Symbol`: each broker puts its own in their place, and in its answers the symbol comes back.
"""

import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.differential.tables import ANSWERS
from tests.hostile.tables import SCHEMAS

from duramen.codec.batch import HEADER_BYTES, batches, header
from duramen.codec.kafka.header import encode_request, response_body_start
from duramen.codec.kafka.versions import ApiKey

__all__ = ["CLOSED", "Beside", "Peer", "Symbol"]

_WAIT_S: Final = 60.0
CLOSED: Final = {"connection": "closed"}
"""What stands for an answer that did not come: the broker closed the connection."""

_OWN: Final = frozenset(
    {
        "throttle_time_ms", "host", "port", "cluster_id", "error_message", "client_host", "documentation",
        "node_endpoints",
        "leader_epoch", "current_leader_epoch", "committed_leader_epoch", "finalized_features_epoch", "current_leader",
        "batch_index_error_message", "acknowledge_error_message", "last_timestamp",
        "coordinator_epoch", "diverging_epoch", "log_dir",
        "total_bytes", "usable_bytes",
    }
)  # fmt: skip
"""Fields that are each broker's own affair: where it is, its words for people, how often it led."""
_TIMES: Final = frozenset({"timestamp", "log_append_time_ms", "transaction_start_time_ms"})


class Symbol(NamedTuple):
    """What stands for an id that each broker has its own of: `kind` and the name by which the sequence knows it."""

    kind: str
    name: str


class Beside(NamedTuple):
    """A number that is `by` more than what a symbol stands for."""

    symbol: Symbol
    by: int


_MISSING: Final = {
    "topic_id": uuid.UUID(int=77), "producer_id": 987_654_321, "epoch": 0, "leader_epoch": 0, "member_epoch": 0,
    "share_epoch": 0, "generation": 0,
    "owned": [], "held": None,
}  # fmt: skip
_NAMED_BACK: Final = frozenset({"topic_id", "producer_id", "member_id"})


class Peer:
    """A broker under test."""

    def __init__(self, address: str, since_ms: int) -> None:
        """Times from `since_ms` on are the broker's own clock."""
        self._since_ms = since_ms
        self._address = address
        self._socket: socket.socket | None = None
        self._ids: dict[Symbol, Any] = {}
        self._symbols: dict[Any, Symbol] = {}

    def learn(self, symbol: Symbol, value: Any) -> None:
        """From here on `symbol` is this value here."""
        self._ids[symbol] = value
        if symbol.kind in _NAMED_BACK:
            self._symbols[value] = symbol

    def known(self, symbol: Symbol) -> Any:
        """What a symbol is here; where it is not known yet, something that is nowhere."""
        return self._ids.get(symbol, _MISSING.get(symbol.kind, f"no-{symbol.name}"))

    def ask(self, api: ApiKey, version: int, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer as it is; `CLOSED` where there is none."""
        body = SCHEMAS[api].encode(version, self._with_ids(message))
        try:
            frame = self._exchange(encode_request(api, version, 7, "differential", body))
        except (ConnectionError, EOFError):
            self.close()
            return dict(CLOSED)
        except TimeoutError:
            raise AssertionError(f"{self._address} does not answer {api.name} {version} {message!s:.500}") from None
        if api is ApiKey.API_VERSIONS:
            version = version if frame[4:6] != b"\0\x23" else 0
        return ANSWERS[api].decode(version, frame, response_body_start(api, version, frame))

    def _exchange(self, request: bytes) -> bytes:
        if self._socket is None:
            host, _, port = self._address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)), _WAIT_S)
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            assert self._socket is not None
            piece = self._socket.recv(size - len(got))
            if not piece:
                raise EOFError
            got += piece
        return got

    def close(self) -> None:
        """Forget the connection; the next request opens one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _with_ids(self, value: Any) -> Any:
        if isinstance(value, Symbol):
            return self.known(value)
        if isinstance(value, Beside):
            return self.known(value.symbol) + value.by
        if isinstance(value, Mapping):
            return {name: self._with_ids(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._with_ids(inner) for inner in value]
        return value

    def normal(self, value: Any, name: str = "") -> Any:
        """An answer without what is each broker's own."""
        if isinstance(value, dict):
            named = {key: self.normal(inner, key) for key, inner in value.items() if key not in _OWN}
            if value.get("error_code") and "producer_id" in value:
                named["producer_id"] = value["producer_id"]  # only looks like somebody's id
            return named
        if name == "configs" and value:
            return {config["name"]: self.normal(config) for config in value}
        if isinstance(value, list | tuple):
            return _ordered(name, [self.normal(inner, name) for inner in value])
        if name == "records":
            return _records(value or b"", self._symbols)
        if isinstance(value, str | uuid.UUID) or name == "producer_id":
            return self._symbols.get(value, value)
        if name in _TIMES and isinstance(value, int) and value >= self._since_ms:
            return "now"
        return value


def _ordered(name: str, values: list[Any]) -> list[Any]:
    """Lists in which no order is promised: sorted."""
    if name in (
        "partitions",
        "configs",
        "topics",
        "responses",
        "groups",
        "synonyms",
        "resources",
        "results",
        "members",
        "entity",
        "entries",
        "values",
        "topic_partitions",
        "subscribed_topic_names",
        "active_producers",
        "transaction_states",
        "unknown_state_filters",
    ):
        return sorted(values, key=_sorting)
    return values


def _sorting(value: Any) -> str:
    if isinstance(value, dict):
        names = (
            "name", "topic", "topic_id", "resource_name", "group_id", "partition_index", "index", "partition",
            "member_id", "topic_name", "entity_type", "entity_name", "key", "producer_id", "transactional_id", "entity",
        )  # fmt: skip
        return "/".join(f"{value[name]!s:>9}" for name in names if name in value)
    return str(value)


def _records(data: bytes, symbols: Mapping[Any, Symbol]) -> list[tuple[Any, ...]]:
    """The whole batches of an answer: a broker may add a part of the next."""
    found = []
    for position, head in batches(data):
        content = data[position + HEADER_BYTES : position + head.size]
        if head.attributes & 0x20:
            content = content[:8]  # a marker's coordinator epoch is the broker's own
        producer = symbols.get(head.producer_id, head.producer_id)
        found.append(
            (
                head.base_offset, head.attributes, head.last_offset_delta, producer,
                header(data, position).base_sequence, content.hex()[:80],
            )
        )  # fmt: skip
    return found
