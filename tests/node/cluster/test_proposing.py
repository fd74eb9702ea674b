"""A proposal on its way to the leader and back: what is answered, what is refused, and what nobody knows."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, wraps
from types import SimpleNamespace
from typing import cast

import pytest
from tests.doors.cluster.nodes import Heard, Node, identity, node, soon

from duramen.base.errors import BatchTooLarge, DuramenError, NotController, OutcomeUnknown, RequestInvalid
from duramen.base.ids import Position
from duramen.broker.quorum.runner import Runner
from duramen.codec.cluster.channels import Subject
from duramen.codec.cluster.proposals import Committed, Proposal, Refused, encode
from duramen.controller.events import Event, GroupConfigured
from duramen.controller.quorum.voters import ReplicaId
from duramen.node.cluster.proposing import Proposing

EVENT = GroupConfigured("g", {"x": "y"})
ME, LEADER = ReplicaId(1, str(identity(1).directory_id)), ReplicaId(2, str(identity(2).directory_id))

Result = Position | DuramenError
NOT_HERE = NotController("not here")


class Quorum:
    """Stands where a runner does: it knows who leads, and answers what is proposed to it."""

    def __init__(self, leader: ReplicaId | None, answer: Result = NOT_HERE) -> None:
        self.machine = SimpleNamespace(me=ME, leader=leader)
        self.proposed: list[Sequence[Event]] = []
        self._answer = answer

    def propose(self, events: Sequence[Event], done: Callable[[Result], None]) -> None:
        self.proposed.append(events)
        done(self._answer)


def proposing(quorum: Quorum, at: Node) -> Proposing:
    return Proposing(cast("Runner", quorum), at.door.peers)


def in_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def answer_to(one: Node, two: Node, act: Callable[[Heard], None]) -> Result:
    """What `one` hears of its proposal when `two`, which leads, does that with it."""
    await one.dial(two)
    result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    proposing(Quorum(LEADER), one).propose([EVENT], result.set_result)
    act(await soon(two.owner.heard.get()))
    return await soon(result)


def take(port: Proposing, heard: Heard) -> None:
    port.request(heard.link, heard.number, heard.body)


@in_a_loop
async def test_what_the_leader_answers_is_the_answer() -> None:
    for given, kind in (
        (Position(3, 17), Position),
        (NotController("node 9 does"), NotController),
        (OutcomeUnknown("gone"), OutcomeUnknown),
        (BatchTooLarge("too much"), BatchTooLarge),
    ):
        async with node(identity(1)) as one, node(identity(2)) as two:
            quorum = Quorum(LEADER, given)
            result = await answer_to(one, two, partial(take, proposing(quorum, two)))
            assert isinstance(result, kind)
            assert str(result) == str(given)
            assert quorum.proposed == [[EVENT]]


@in_a_loop
async def test_what_becomes_of_it_is_not_known_where_no_answer_can_be_read() -> None:
    def strange(heard: Heard) -> None:
        heard.link.answer(Subject.PROPOSAL, heard.number, encode(Refused("an-error-of-tomorrow", "because")))

    def nonsense(heard: Heard) -> None:
        heard.link.answer(Subject.PROPOSAL, heard.number, b"nonsense")

    def gone(heard: Heard) -> None:
        heard.link.abort("no more")

    for act in (strange, nonsense, gone):
        async with node(identity(1)) as one, node(identity(2)) as two:
            assert isinstance(await answer_to(one, two, act), OutcomeUnknown)


@in_a_loop
async def test_nothing_is_sent_that_cannot_arrive() -> None:
    results: list[Result] = []
    async with node(identity(1)) as one, node(identity(2)) as two:
        port = proposing(Quorum(LEADER), one)
        port.propose([EVENT], results.append)
        await one.dial(two)
        port.propose([GroupConfigured("g", {"x": "y" * (5 << 20)})], results.append)
    assert [type(result) for result in results] == [NotController, BatchTooLarge]
    assert "node 2 leads the quorum of the controller, and this node cannot reach it now" in str(results[0])


@in_a_loop
async def test_who_leads_or_knows_no_leader_decides_itself() -> None:
    async with node(identity(1)) as one:
        for leader in (ME, None):
            results: list[Result] = []
            quorum = Quorum(leader, Position(1, 2))
            proposing(quorum, one).propose([EVENT], results.append)
            assert results == [Position(1, 2)]
            assert quorum.proposed == [[EVENT]]


@in_a_loop
async def test_a_proposal_that_is_damaged_is_refused() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        link = await one.dial(two)
        port = proposing(Quorum(LEADER), one)
        for body in (b"nonsense", encode(Committed(1, 1)), encode(Proposal((b"{}",)))):
            with pytest.raises(RequestInvalid, match="is damaged"):
                port.request(link, 1, body)
