"""Requests, responses and errors of every method come out of their bytes as they went in; other bytes are refused."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import (
    DuramenError,
    MemberIdRequired,
    NodeStarting,
    NotLeader,
    OutcomeUnknown,
    RequestInvalid,
    StreamExists,
    UnsupportedFeature,
)
from duramen.broker.control.requests import CreateStream, Register
from duramen.metadata.decisions import Definition
from duramen.rpc.methods import Method, MethodTable
from duramen.rpc.server import RpcServer
from duramen.rpc.wire import VERSION, TableWire, Wire, Wires
from duramen.service.methods import TABLE
from duramen.service.old_wire import OldWire
from tests.mutation import mutate
from tests.rpc.values import values

WIRE = TableWire(TABLE)
WIRES: list[Wire] = [WIRE, OldWire()]
METHODS: list[Method[Any, Any]] = list(TABLE)
PAIRS = [(wire, method) for wire in WIRES for method in METHODS if wire.knows(method)]
DEEP = b"\x91" * 200_000
"""An array in an array, and so on: deeper than Python's stack."""


def serving(speaks_table: bool = True) -> RpcServer:
    """A server whose handlers answer with errors."""
    server = RpcServer(Wires(WIRE, OldWire(), lambda: speaks_table))

    def refuse(request: object, _: object) -> None:
        raise NotLeader(f"not here: {type(request).__name__}")

    for method in METHODS:
        server.handle(method, refuse)
    return server


@given(st.sampled_from(PAIRS), st.data())
def test_requests_and_responses_come_back(pair: tuple[Wire, Method[Any, Any]], data: st.DataObject) -> None:
    wire, method = pair
    request, response = data.draw(values(method.request)), data.draw(values(method.response))
    asked = wire.decode_request(bytearray(wire.encode_request(method, request)))
    assert msgspec.msgpack.encode(asked.request) == msgspec.msgpack.encode(request)
    # The old encoding tells methods apart by their requests.
    assert asked.method is method if wire is WIRE else asked.method.request is method.request
    body = wire.encode_response(method, response)
    found = wire.decode_response(method, memoryview(body))
    assert isinstance(found, method.response)
    assert wire.encode_response(method, found) == body


def test_fields_of_requests_to_the_controller_keep_their_names_on_the_wire() -> None:
    create = msgspec.msgpack.decode(msgspec.msgpack.encode(CreateStream(Definition("s", 1, {}))))
    assert create["request"] == "CreateStream"
    assert create["wish"] == ["s", 1, {}, [], False]
    assert "wish" in Register.__struct_encode_fields__


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_errors_are_of_their_class(method: Method[Any, Any]) -> None:
    found = WIRE.decode_response(method, WIRE.encode_response(method, StreamExists("a stream s exists")))
    assert (type(found), str(found)) == (StreamExists, "a stream s exists")
    for wire in WIRES:
        if wire.knows(method):
            assert isinstance(wire.decode_response(method, b""), NodeStarting)


@pytest.mark.parametrize("error", [MemberIdRequired("m"), type("Newer", (DuramenError,), {"id": "newer"})("text")])
def test_an_error_that_this_version_cannot_make_is_told_as_it_came(error: DuramenError) -> None:
    found = WIRE.decode_response(METHODS[0], WIRE.encode_refusal(error).replace(b"newer", b"other"))
    assert isinstance(found, RequestInvalid)
    assert str(found).startswith(("other: text", "member-id-required: "))


def test_a_method_of_a_newer_version_is_refused_and_named() -> None:
    newer = Method("of-a-newer-version", int, int, idempotent=True)
    said: list[bytes] = []
    serving().serve(TableWire(MethodTable([newer])).encode_request(newer, 7), said.append)
    found = TableWire(MethodTable([newer])).decode_response(newer, said[0])
    assert isinstance(found, UnsupportedFeature)
    assert "of-a-newer-version" in str(found)


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two methods have the name a"):
        MethodTable([Method("a", int, int, idempotent=True), Method("a", str, str, idempotent=True)])


@given(st.binary(max_size=60))
def test_hostile_bytes_are_answered_with_an_error(body: bytes) -> None:
    said: list[bytes] = []
    serving().serve(VERSION + body, said.append)
    (answer,) = said
    assert isinstance(WIRE.decode_response(METHODS[0], answer), RequestInvalid | UnsupportedFeature | NotLeader)
    for wire, method in PAIRS:
        found = wire.decode_response(method, VERSION + body)
        assert isinstance(found, DuramenError | method.response)
        found = wire.decode_response(method, body)
        assert isinstance(found, DuramenError | method.response)


@given(st.binary(max_size=60))
def test_hostile_bytes_of_no_version_are_answered(body: bytes) -> None:
    said: list[bytes] = []
    serving().serve(body, said.append)
    assert len(said) == 1


@given(st.sampled_from(METHODS), st.data(), st.integers())
def test_mutated_requests_are_answered(method: Method[Any, Any], data: st.DataObject, seed: int) -> None:
    request = data.draw(values(method.request))
    for wire in (known for known, one in PAIRS if one is method):
        body = bytearray(wire.encode_request(method, request))
        mutate(body, random.Random(seed))
        said: list[bytes] = []
        serving().serve(body, said.append)
        assert len(said) == 1


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_what_nests_deeper_than_the_stack_is_refused(method: Method[Any, Any]) -> None:
    name = msgspec.msgpack.encode(method.name)
    for body in (VERSION + DEEP, VERSION + b"\x92" + name + DEEP, VERSION + b"\x93" + name + b"\x90" + DEEP):
        said: list[bytes] = []
        serving().serve(body, said.append)
        assert isinstance(WIRE.decode_response(method, said[0]), RequestInvalid | NotLeader)
        assert isinstance(WIRE.decode_response(method, body), OutcomeUnknown)
    with pytest.raises(RequestInvalid):
        OldWire().decode_request(DEEP)
    if OldWire().knows(method):
        assert isinstance(OldWire().decode_response(method, DEEP), OutcomeUnknown)


def test_older_nodes_are_asked_in_the_old_encoding_what_they_know() -> None:
    wires = Wires(WIRE, OldWire(), lambda: False)
    newer = {"fetch-range", "fetch-rows", "read-queues", "change-queues", "know-topic"}
    newer |= {"read-inventory", "change-inventory", "change-topics", "find-topic-names", "follow-inventory"}
    newer |= {"find-lags", "read-changes", "watch-changes"}
    newer |= {"snapshot", "snapshot-lease", "find-held-snapshots", "hold-snapshot", "find-unkeyed"}
    newer |= {"open-export", "read-export", "read-inventory-export"}
    newer |= {"find-commits", "hold-commits", "release-commits"}
    assert {method.name for method in METHODS if wires.of_method(method) is WIRE} == newer
