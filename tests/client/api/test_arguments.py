"""Arguments of any type and value: what does not fit is a DuramenError that names the argument."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.client.api.conftest import Face
from tests.examples import examples

import duramen
from duramen import errors
from duramen.errors import DuramenError, RequestInvalid
from duramen.testing import Broker

ODD = [1 << 63, -1 << 70, float("nan"), "x" * 5000, bytearray(b"a"), memoryview(b"a"), object, object()]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(), st.binary(max_size=9), st.text(max_size=9),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2), st.datetimes(), st.sampled_from(ODD),
    st.just(16_000).map(lambda bits: 1 << bits),
)  # fmt: skip
KEYS = st.text(max_size=3) | st.integers()
ANY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)

RECORD = {"value": "v", "key": "k", "headers": [], "partition": 0, "timestamp_ms": 5}
CALLS: dict[str, tuple[Callable[[Face, dict[str, Any]], Any], dict[str, Any]]] = {
    "produce": (lambda face, given: face.produce(**given), {"stream": "s", "records": ["v"], "partition": 0}),
    "record": (lambda face, given: face.produce("s", [duramen.NewRecord(**given)]), RECORD),
    "consume": (
        lambda face, given: face.consume(**given),
        {"stream": "s", "offset": "start", "until": "end", "partition": 0, "group": None, "idle_s": 0},
    ),
    "wait_replicated": (
        lambda face, given: face.wait_replicated(**given),
        {"stream": "s", "partition": 0, "position": 0, "timeout_s": 0.01, "node": 1},
    ),
    "streams.create": (
        lambda face, given: face.streams("create", **given),
        {"name": "s", "partitions": 3, "replication_factor": 1, "subjects": [], "config": {}},
    ),
    "streams.describe": (lambda face, given: face.streams("describe", **given), {"name": "s"}),
    "streams.alter": (lambda face, given: face.streams("alter", **given), {"name": "s", "config": {}}),
    "streams.add_partitions": (
        lambda face, given: face.streams("add_partitions", **given), {"name": "s", "partitions": 3},
    ),
    "streams.delete": (lambda face, given: face.streams("delete", **given), {"name": "there-is-none"}),
    "streams.list": (lambda face, given: face.streams("list", **given), {"prefix": "there-is-none"}),
    "groups.describe": (lambda face, given: face.groups("describe", **given), {"group": "g"}),
    "groups.delete": (lambda face, given: face.groups("delete", **given), {"group": "g"}),
    "groups.reset": (
        lambda face, given: face.groups("reset", **given),
        {"group": "g", "to": "start", "streams": ["s"], "partition": 0, "dry_run": True},
    ),
}  # fmt: skip
INVENTORY: dict[str, dict[str, Any]] = {
    "accounts": {"prefix": "there-is-none", "glob": "", "pattern": ""},
    "account": {"account": "a"},
    "create_tenants": {"names": ["t"], "labels": {"a": "b"}, "account": ""},
    "tenants": {"prefix": "there-is-none", "glob": "", "pattern": "", "label": "", "account": ""},
    "tenant": {"tenant": "t", "account": ""},
    "update_tenant": {"tenant": "there-is-none", "name": "n", "labels": {}, "account": ""},
    "delete_tenant": {"tenant": "there-is-none", "account": ""},
    "create_namespaces": {"tenant": "t", "names": ["n"], "labels": None, "account": ""},
    "namespaces": {"tenant": "t", "prefix": "there-is-none", "glob": "", "pattern": "", "label": "", "account": ""},
    "namespace": {"namespace": "t/n", "account": ""},
    "update_namespace": {"namespace": "t/none", "to": "t/o", "labels": {}, "subjects": [], "account": ""},
    "delete_namespace": {"namespace": "t/none", "account": ""},
    "create_topics": {"namespace": "t/n", "names": ["a"], "progress": None, "account": ""},
    "topic": {"topic": "t/n/a", "account": ""},
    "topic_by_id": {"topic_id": "x"},
    "lookup": {"namespace": "t/n", "names": ["a"], "account": ""},
    "move_topic": {"topic": "t/n/none", "to": "t/n/b", "keep_alias": False, "account": ""},
    "move_topics": {"namespace": "t/n", "moves": {"none": "t/n/b"}, "keep_alias": False, "account": ""},
    "alias": {"alias": "t/n/b", "topic": "t/n/none", "account": ""},
    "delete_topic": {"topic": "t/n/none", "account": ""},
    "search_page": {
        "scope": "t", "prefix": "", "glob": "", "pattern": "", "label": "", "kind": "", "durability": "", "policy": "",
        "after": "", "limit": 5, "account": "",
    },
    "policies.describe": {"path": "t", "account": ""},
    "policies.set": {"path": "there-is-none", "policies": {"quota.topics": 5}, "wait_effective": False, "account": ""},
    "subscribe": {"path": "t/n", "prefix": "a", "position": "", "account": ""},
}  # fmt: skip
ENTRY = duramen.LeasedEntry("0.0", 0, 0, None, None, (), queue="q", lease="0.1", deliveries=1)
QUEUES: dict[str, dict[str, Any]] = {
    "enqueue": {"queue": "q", "values": ["v"], "delay_s": 0, "ttl_s": 0, "request_id": ""},
    "enqueue_many": {"entries": [("q", "v")], "delay_s": 0, "ttl_s": 0, "request_id": ""},
    "retrieve": {"queue": "q", "start": "start", "limit": 1, "wait_s": 0, "delayed": False},
    "retrieve_many": {"queues": {"q": "start"}, "limit": 1, "wait_s": 0},
    "edit": {"queue": "q", "edits": [("0.0", "v")], "request_id": ""},
    "delete": {"queue": "q", "positions": ["0.0"], "version": None, "request_id": ""},
    "replace": {"queue": "other", "start": "start", "values": ["v"], "by": "", "reason": "", "request_id": ""},
    "lease": {"queues": ["other"], "limit": 1, "lease_s": 0.001, "fifo": False},
    "ack": {"entries": [ENTRY], "request_id": ""},
    "nack": {"entries": [ENTRY], "delay_s": 0, "request_id": ""},
    "extend": {"entries": [ENTRY], "lease_s": 1},
    "queues": {"prefix": "q"},
    "names": {"prefix": "q", "after": "", "limit": 1},
    "stats": {"queue": "q"},
    "purge": {"queue": "other", "request_id": ""},
    "drop": {"queue": "other", "request_id": ""},
}  # fmt: skip


def _ask_inventory(name: str) -> Callable[[Face, dict[str, Any]], Any]:
    return lambda face, given: face.inventory(name, **given)


def _ask_queues(name: str) -> Callable[[Face, dict[str, Any]], Any]:
    return lambda face, given: face.queues("m", name, **given)


CALLS |= {f"inventory.{name}": (_ask_inventory(name), fine) for name, fine in INVENTORY.items()}
CALLS |= {f"queues.{name}": (_ask_queues(name), fine) for name, fine in QUEUES.items()}
CALLS["queues"] = (lambda face, given: face.queues(given["space"], "usage"), {"space": "m"})
EXAMPLES = 20
PARAMETERS = [(call, parameter) for call, (_, fine) in CALLS.items() for parameter in fine]


@pytest.fixture
def ready(face: Face) -> Face:
    """A client of a node that has the stream `s` with three partitions and a record in the first, and the space `m`."""
    face.streams("create", "s", partitions=3)
    face.produce("s", ["v"], partition=0)
    face.make_space("m", 1)
    face.queues("m", "enqueue", "q", ["v"])
    return face


@pytest.mark.parametrize(("call", "parameter"), PARAMETERS)
def test_any_value_does_or_is_refused(ready: Face, call: str, parameter: str) -> None:
    ask, fine = CALLS[call]

    @settings(suppress_health_check=list(HealthCheck), max_examples=examples(EXAMPLES))
    @given(ANY)
    @example("../..")
    @example(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
    @example(datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))))
    def one(value: Any) -> None:
        with suppress(DuramenError):
            ask(ready, fine | {parameter: value})

    one()


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
@pytest.mark.parametrize("parameter", ["server", "timeout_s", "compression"])
def test_a_client_is_made_or_refused(duramen_broker: Broker, kind: str, parameter: str) -> None:
    fine: dict[str, Any] = {"server": duramen_broker.http_url, "timeout_s": 5.0, "compression": "none"}

    @settings(suppress_health_check=list(HealthCheck), max_examples=examples(EXAMPLES))
    @given(ANY)
    @example("a..b:1")
    @example("\x00:1")
    @example("x" * 70 + ":1")
    @example("[::1:1")
    def one(value: Any) -> None:
        with suppress(DuramenError):
            Face(kind, **(fine | {parameter: value})).end()

    one()


# A value that cannot be right for each parameter, and how the error names it.
WRONG = [
    ("queues", "space", "", "space is the name of a queue space"),
    ("queues.edit", "edits", "0.0", "edits are given in a list"),
    ("queues.delete", "positions", None, "positions is a list"),
    ("queues.lease", "queues", "q", "queues are given in a list"),
    ("queues.ack", "entries", ENTRY, "entries are given in a list: write [entry] for a single one"),
    ("queues.nack", "entries", None, "entries is a list"),
    ("inventory.create_topics", "names", "a", "names are given in a list"),
    ("produce", "stream", 5, "stream is str, not int 5"),
    ("produce", "records", {"a": "b"}, "records is a list"),
    ("produce", "records", 5, "records is a list"),
    ("produce", "records", bytearray(b"ab"), "records is a list"),
    ("produce", "records", [5], "a record is bytes, str, NewRecord or Record, not int"),
    ("produce", "partition", "0", "partition is a whole number"),
    ("produce", "partition", True, "partition is a whole number"),
    ("record", "value", 5, "a value is bytes, str or None, not int"),
    ("record", "key", bytearray(b"k"), "a key is bytes, str or None, not bytearray"),
    ("record", "headers", None, "headers is a mapping"),
    ("record", "headers", "ab", "headers is a mapping"),
    ("record", "headers", ["ab"], "a pair in headers is (name, value), not str 'ab'"),
    ("record", "headers", [("a", "b", "c")], "a pair in headers is (name, value), not tuple"),
    ("record", "headers", {5: "x"}, "a header's name is str, not int"),
    ("record", "headers", {"id": 5}, "a header is bytes, str or None, not int"),
    ("record", "partition", 1.0, "partition is a whole number"),
    ("record", "timestamp_ms", 1.5, "timestamp_ms is a whole number"),
    ("record", "timestamp_ms", datetime(2026, 1, 1, tzinfo=UTC), "timestamp_ms is a whole number"),
    ("record", "timestamp_ms", -5, "timestamp_ms=-5 is no time since 1970"),
    ("record", "timestamp_ms", 1 << 63, "timestamp_ms is a whole number"),
    ("consume", "stream", b"s", "stream is str, not bytes"),
    ("consume", "offset", 1.5, "offset is str, int or datetime, not float 1.5"),
    ("consume", "until", True, "until is str, int or datetime, not bool True"),
    ("consume", "partition", -1, "partition is a whole number from 0"),
    ("consume", "group", 5, "group is str, not int 5"),
    ("consume", "idle_s", "1", "idle_s is a number of seconds"),
    ("consume", "idle_s", float("nan"), "idle_s is a number of seconds"),
    ("wait_replicated", "position", "0", "position is a whole number"),
    ("wait_replicated", "position", (1, 2, 3), "position is an offset or (leader epoch, offset)"),
    ("wait_replicated", "position", (0, -1), "position[1] is a whole number"),
    ("wait_replicated", "timeout_s", None, "timeout_s is a number of seconds"),
    ("wait_replicated", "node", "1", "node is a whole number"),
    ("streams.create", "name", None, "name is str, not NoneType None"),
    ("streams.create", "partitions", 2.0, "partitions is a whole number"),
    ("streams.create", "replication_factor", Decimal(1), "replication_factor is a whole number"),
    ("streams.create", "subjects", "a.b", "subjects is a list of str, not str 'a.b'"),
    ("streams.create", "subjects", [5], "subjects[0] is str, not int 5"),
    ("streams.create", "config", [("a", "b")], "config is a mapping of configs, not list"),
    ("streams.create", "config", {"retention.ms": None}, "config['retention.ms'] is str, bool or a finite number"),
    ("streams.create", "config", {"retention.ms": float("inf")}, "config['retention.ms'] is str, bool or a finite"),
    ("streams.create", "config", {5: "x"}, "a name in config is str, not int 5"),
    ("streams.alter", "config", {"retention.ms": b"5"}, "config['retention.ms'] is str, bool or a finite number"),
    ("streams.add_partitions", "partitions", None, "partitions is a whole number"),
    ("streams.describe", "name", "\ud800", "name is str without half a surrogate pair"),
    ("streams.delete", "name", 5, "name is str, not int 5"),
    ("streams.list", "prefix", None, "prefix is str, not NoneType None"),
    ("groups.describe", "group", 5, "group is str, not int 5"),
    ("groups.delete", "group", None, "group is str, not NoneType None"),
    ("groups.reset", "to", None, "to is str, int or datetime, not NoneType None"),
    ("groups.reset", "streams", "s", "streams is a list of str, not str 's'"),
    ("groups.reset", "partition", "0", "partition is a whole number"),
    ("groups.reset", "dry_run", "no", "dry_run is True or False, not str 'no'"),
]


@pytest.mark.parametrize(("call", "parameter", "value", "message"), WRONG)
def test_the_error_names_the_argument(ready: Face, call: str, parameter: str, value: Any, message: str) -> None:
    ask, fine = CALLS[call]
    before = ready.records("s")
    with pytest.raises(RequestInvalid) as raised:
        ask(ready, fine | {parameter: value})
    assert message in str(raised.value)
    assert ready.records("s") == before


def test_headers_as_a_mapping_and_in_a_list(ready: Face) -> None:
    given: list[Any] = [{"id": "x", "n": None}, [["id", b"x"], ("id", "y")], (), {}]
    ready.produce("s", [duramen.NewRecord("v", headers=headers) for headers in given], partition=1)
    read = ready.records("s", partition=1)
    assert [record.headers for record in read[-4:]] == [
        (("id", b"x"), ("n", None)), (("id", b"x"), ("id", b"y")), (), (),
    ]  # fmt: skip


def test_any_time_that_kafka_clients_write_can_be_written_again(ready: Face) -> None:
    times = [0, -1, -2, -(1 << 63), 5]
    ready.produce("s", [duramen.Record("s", 2, 0, time_ms, None, b"v") for time_ms in times])
    read = ready.records("s", partition=2)
    assert [record.timestamp_ms for record in read[-5:]] == times
    ready.produce("s", read)
    again = ready.records("s", partition=2)[-len(read) :]
    assert [record.timestamp_ms for record in again] == [record.timestamp_ms for record in read]


def test_a_server_is_an_address(kind: str) -> None:
    with pytest.raises(RequestInvalid, match="server is str, not int 5"):
        Face(kind, 5)  # type: ignore[arg-type]
    with pytest.raises(RequestInvalid, match="timeout_s is a number of seconds"):
        Face(kind, "127.0.0.1:1", timeout_s=-1)
    with pytest.raises(RequestInvalid, match="compression is one of none, gzip"):
        Face(kind, "127.0.0.1:1", compression=None)
    with pytest.raises(errors.ServerUnreachable):
        Face(kind, "a..b:1")
