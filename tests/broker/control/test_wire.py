"""Requests, answers and errors come out of their bytes as they went in; other bytes are refused."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DuramenError, MemberIdRequired, OutcomeUnknown, RequestInvalid, StreamExists
from duramen.broker.control import requests
from duramen.broker.control.answers import (
    Answer,
    Beaten,
    Block,
    Created,
    Done,
    Isr,
    IsrAnswers,
    Observed,
    Planned,
    Registered,
    Stepped,
    Value,
)
from duramen.broker.control.requests import Request
from duramen.broker.control.wire import decode_outcome, decode_request, encode_outcome, encode_request
from duramen.broker.quorum.describe import ReplicaProgress
from duramen.controller.cluster.alter_partition import Member, Proposal, Refusal
from duramen.controller.cluster.heartbeats import Heartbeat
from duramen.controller.cluster.rebalancing import Move, Reason
from duramen.controller.cluster.registering import Registration
from duramen.controller.decisions import Definition
from duramen.controller.events import Endpoint
from duramen.controller.partitions import PartitionId, PartitionState
from duramen.controller.quorum.voters import ReplicaId, Voter

PLACE = PartitionId(UUID(int=7), 3)
MOVES = (Move(PLACE, (1, 2), (2, 3), (Reason.RACK, Reason.LOAD)),)
VOTER = Voter(ReplicaId(3, "d"), "host:9096")
REQUESTS: list[Request] = [
    requests.Register(Registration(1, "d", "i", "c", "rack", ("broker",), (Endpoint("kafka", "host", 9092),), 0, 3)),
    requests.Beat(Heartbeat(1, 5, 9, wants_shutdown=True)),
    requests.AlterPartitions((Proposal(PLACE, Member(1, 5), 2, 3, (Member(1, 5), Member(2, 6))),)),
    requests.ReportLeaders(Member(2, 6), (requests.Report(PLACE, 4),)),
    requests.AllocateProducerIds(),
    requests.CreateStream(Definition("s", 2, {"a": "b"}, ("x.>",)), 2, ((1, 2), (2, 1)), idempotent=True),
    requests.GrowStream("s", 4, ((1, 2),), 100),
    requests.ConfigureStream("s", {"a": None, "b": "c"}, whole=True),
    requests.DeleteStream("s"),
    requests.ConfigureNode(None, {"a": "b"}),
    requests.ConfigureGroup("g", {"a": "b"}),
    requests.AlterQuotas((("client-id", None), ("user", "u")), (("producer_byte_rate", 1000.0), ("other", None))),
    requests.Adopt(1, 7),
    requests.RecordGap(1, 1000, 2000, "the server was gone"),
    requests.ElectLeader(PLACE, unclean=True, most_complete=2),
    requests.MoveLeader(PLACE, 2),
    requests.RebalanceLeaders(10),
    requests.Reassign(PLACE, (1, 2)),
    requests.CancelReassignment(PLACE),
    requests.PlanMoves((4,)),
    requests.BeginMoves(MOVES, 2),
    requests.CancelMoves(MOVES),
    requests.DrainNode(3),
    requests.UnregisterNode(3),
    requests.SetFeatureLevel(2),
    requests.AddVoter(VOTER),
    requests.RemoveVoter(VOTER.id),
    requests.Observe(),
    requests.AwaitApplied(100, 500),
]
VALUES: list[Value] = [
    Done(),
    Registered(9),
    Beaten(fenced=True, caught_up=False),
    IsrAnswers((Isr(Refusal.NOT_CONTROLLER), Isr(None, PartitionState((1, 2), (1,), 1, 3, 4), new_leader=True))),
    Created(UUID(int=1), existed=True),
    Block(1, 1000),
    Planned(MOVES),
    Stepped(1, 2, 3, 4),
    Observed(1, 2, 9, (ReplicaProgress(VOTER.id, 9, 8, 7, 6),), (), (VOTER,), {1: 9, 4: 8}),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_requests(request_: Request) -> None:
    found = decode_request(encode_request(request_))
    assert type(found) is type(request_)
    assert encode_request(found) == encode_request(request_)
    assert repr(found).replace("[", "(").replace("]", ")") == repr(request_).replace("[", "(").replace("]", ")")


def test_every_kind_of_request_is_among_them() -> None:
    names = {name for name in requests.__all__ if name not in ("Report", "Request")}
    assert {type(one).__name__ for one in REQUESTS} == names


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_answers(value: Value) -> None:
    assert decode_outcome(encode_outcome(Answer(value, 7))) == Answer(value, 7)


def test_errors_are_of_their_class() -> None:
    found = decode_outcome(encode_outcome(StreamExists("a stream s exists")))
    assert (type(found), str(found)) == (StreamExists, "a stream s exists")


@pytest.mark.parametrize("error", [MemberIdRequired("m"), type("Newer", (DuramenError,), {"id": "newer"})("text")])
def test_an_error_that_this_version_cannot_make_is_told_as_it_came(error: DuramenError) -> None:
    body = encode_outcome(error).replace(b"newer", b"other")
    found = decode_outcome(body)
    assert isinstance(found, RequestInvalid)
    assert str(found).startswith(("other: text", "member-id-required: "))


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(RequestInvalid):
        decode_request(body)
    assert isinstance(decode_outcome(body), OutcomeUnknown)
