"""Proposals go to the node that leads the quorum, from whichever node they are made on."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from duramen.base.errors import (
    BatchCorrupt,
    BatchTooLarge,
    DuramenError,
    NodeStopping,
    NotController,
    OutcomeUnknown,
    RequestInvalid,
    StorageFailed,
)
from duramen.base.ids import Position
from duramen.base.ports import Buffer
from duramen.broker.quorum.runner import Runner
from duramen.codec.cluster.channels import LARGEST_BODY_BYTES, Channel, Subject
from duramen.codec.cluster.proposals import Committed, Proposal, Refused, decode_answer, decode_proposal, encode
from duramen.controller.events import Event, decode_event, encode_event
from duramen.doors.cluster.link import Link
from duramen.doors.cluster.peers import Peers

__all__ = ["Proposing", "refuse"]

Done = Callable[[Position | DuramenError], None]

_ERRORS: Final[Mapping[str, type[DuramenError]]] = MappingProxyType(
    {error.id: error for error in (NotController, BatchTooLarge, OutcomeUnknown, NodeStopping, StorageFailed)}
)


class Proposing:
    """The Quorum port of a node of a cluster."""

    def __init__(self, runner: Runner, peers: Peers) -> None:
        self._runner = runner
        self._peers = peers

    def propose(self, events: Sequence[Event], done: Done) -> None:
        """Have events committed, at least one; then `done(position of the last)`.

        Where another node leads, they may not have taken effect on this one yet. `done` gets NotController,
        BatchTooLarge, NodeStopping or StorageFailed where nothing was ordered, OutcomeUnknown where nobody knows.
        """
        leader = self._runner.machine.leader
        if leader is None or leader == self._runner.machine.me:
            self._runner.propose(events, done)
            return
        body = encode(Proposal(tuple(map(encode_event, events))))
        if len(body) > LARGEST_BODY_BYTES[Channel.CONTROL]:
            done(
                BatchTooLarge(f"{len(events)} changes at once have {len(body)} bytes, more than one node tells another")
            )
            return
        link = self._peers.link(leader.node_id, Channel.CONTROL)
        if link is None or not link.request(Subject.PROPOSAL, partial(_answered, leader.node_id, done), body):
            leads = f"node {leader.node_id} leads the quorum of the controller"
            done(NotController(f"{leads}, and this node cannot reach it now"))

    def request(self, link: Link, number: int, body: Buffer) -> None:
        """Another node takes this one for the leader. Raises RequestInvalid where that cannot be read."""
        proposal = decode_proposal(body)
        try:
            events = [decode_event(event) for event in proposal.events]
        except BatchCorrupt as error:
            raise RequestInvalid(f"a proposal is damaged: {error}") from None

        def done(result: Position | DuramenError) -> None:
            if isinstance(result, Position):
                link.answer(Subject.PROPOSAL, number, encode(Committed(*result)))
            else:
                refuse(link, number, result)

        # Not `propose`: two nodes that take each other for the leader would send it to and fro.
        self._runner.propose(events, done)


def refuse(link: Link, number: int, error: DuramenError) -> None:
    """Answer a proposal of another node with an error."""
    link.answer(Subject.PROPOSAL, number, encode(Refused(error.id, str(error))))


def _answered(node_id: int, done: Done, body: Buffer | None) -> None:
    if body is None:
        done(OutcomeUnknown(f"the connection to node {node_id}, which led the quorum, ended before it answered"))
        return
    try:
        answer = decode_answer(body)
    except RequestInvalid as error:
        done(OutcomeUnknown(f"the answer of node {node_id} cannot be read: {error}"))
        raise
    match answer:
        case Committed(epoch, offset):
            done(Position(epoch, offset))
        case Refused(error_id, text):
            done(_ERRORS.get(error_id, OutcomeUnknown)(text))
