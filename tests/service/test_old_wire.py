"""What nodes of feature level 2 say, byte for byte as that version has said it."""

from typing import Any

import msgspec
import pytest

from duramen.base.errors import DuramenError, NodeStarting, NotCoordinator
from duramen.broker.control import requests
from duramen.broker.control.methods import method_of
from duramen.broker.control.responses import Answer, Done
from duramen.broker.list_offsets import FIND_BOUNDS, FindBounds, FoundBounds, ListOffsetsPartition, PartitionBounds
from duramen.controller.admin import completeness
from duramen.controller.admin.completeness import SURVEY_REPLICAS, KeptReplicas, SurveyReplicas
from duramen.controller.admin.replica_survey import ReplicaCompleteness
from duramen.coordinators.group.listing import LIST_GROUPS, GroupRow, GroupRows, ListGroups
from duramen.coordinators.share.requests import LOCATE, READ_STATE, Locate, Located, ReadState, Was
from duramen.coordinators.transaction.cluster.requests import (
    JOIN,
    WRITE_MARKERS,
    Join,
    Joined,
    WriteMarkers,
    WriteMarkersResponse,
)
from duramen.metadata.registration import Registration
from duramen.rpc.errors import Refused
from duramen.rpc.methods import Method
from duramen.service.old_wire import OldWire

ID = bytes(range(16))
ROW = GroupRow("g", "Empty", "consumer", None, 0, 7, "classic")
KNOWN = Registration(1, "d", "i", "c", least_feature_level=1, latest_feature_level=9)
DAMAGED = KNOWN._replace(damaged=True)
SAID: list[tuple[Method[Any, Any], Any, bytes, Any, Any, Any]] = [
    (LIST_GROUPS, ListGroups("a", 10), b"\0", ["a", 10], GroupRows([ROW]), [list(msgspec.structs.astuple(ROW))]),
    (
        FIND_BOUNDS, FindBounds([ListOffsetsPartition(ID, 3, last=5)]), b"\2", [[ID, 3, -1, -1, False, 5]],
        FoundBounds([(PartitionBounds(1, 2), None), (None, Refused("not-leader", "no"))]), [[1, 2, -1, -1], "no"],
    ),
    (
        SURVEY_REPLICAS, SurveyReplicas([completeness.SurveyTarget(ID, 3)]), b"\3", [[ID, 3]],
        KeptReplicas([ReplicaCompleteness(1, 2, 3), None]), [[1, 2, 3, 0], None],
    ),
    (
        method_of(requests.DeleteStream("s")), requests.DeleteStream("s"), b"",
        {"request": "DeleteStream", "name": "s"},
        Answer(Done(), 7), {"answer": {"value": {"answer": "Done"}, "end_offset": 7}},
    ),
    (
        method_of(requests.Register(KNOWN)), requests.Register(KNOWN), b"",
        {"request": "Register", "wish": [1, "d", "i", "c", None, [], [], 1, 9, False, None], "renews": 0},
        Answer(Done(), 7), {"answer": {"value": {"answer": "Done"}, "end_offset": 7}},
    ),
    (
        method_of(requests.Register(DAMAGED)), requests.Register(DAMAGED), b"",
        {"request": "Register", "wish": [1, "d", "i", "c", None, [], [], 1, 9, False, None, True], "renews": 0},
        Answer(Done(), 7), {"answer": {"value": {"answer": "Done"}, "end_offset": 7}},
    ),
    (
        JOIN, Join("t", 1, 2, True, (("a", 0),)), b"", ["join", "t", 1, 2, True, [["a", 0]]],
        Joined(3, (True,)), ["joined", 3, [True]],
    ),
    (
        WRITE_MARKERS, WriteMarkers(4, 5, 6, 7, True, 2, ((ID, 0),), 9), b"",
        ["markers", 4, 5, 6, 7, True, 2, [[ID, 0]], 9],
        WriteMarkersResponse((None, Refused("not-leader", "no"))), ["written", [None, ["not-leader", "no"]]],
    ),
    (
        READ_STATE, ReadState(("g", ID, 0), 4), b"\1", ["read", ["g", ID, 0], 4],
        Was(5, ((5, 6, 0, 1),), 2, 4), ["was", 5, [[5, 6, 0, 1]], 2, 4],
    ),
    (
        LOCATE, Locate((("g", ID, 0),)), b"\1", ["locate", [["g", ID, 0]]],
        Located(((1, 2, 3),), (None,)), ["located", [[1, 2, 3]], [None]],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("method", "request_", "mark", "asked", "response", "said"), SAID)
def test_what_is_said(
    method: Method[Any, Any], request_: Any, mark: bytes, asked: Any, response: Any, said: Any
) -> None:
    wire = OldWire()
    body = mark + msgspec.msgpack.encode(asked)
    assert wire.encode_request(method, request_) == body
    assert wire.decode_request(body) == (method, request_)
    answer = msgspec.msgpack.encode(said)
    assert wire.encode_response(method, response) == answer
    assert wire.decode_response(method, answer) == response


def test_errors() -> None:
    wire, error = OldWire(), NotCoordinator("elsewhere")
    body = msgspec.msgpack.encode(["refused", ["not-coordinator", "elsewhere"]])
    tagged: list[Method[Any, Any]] = [JOIN, READ_STATE]
    for method in tagged:
        assert wire.encode_response(method, error) == body
        found = wire.decode_response(method, body)
        assert isinstance(found, DuramenError)
        assert (type(found), str(found)) == (NotCoordinator, "elsewhere")
    assert wire.encode_response(LIST_GROUPS, error) == b""  # which says nothing
    assert wire.encode_response(JOIN, NodeStarting("not ready")) == b""
    body = msgspec.msgpack.encode({"refused": ["not-controller", "not ready"]})
    assert wire.encode_response(method_of(requests.Observe()), NodeStarting("not ready")) == body
