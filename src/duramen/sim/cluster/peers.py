"""Requests between the members of simulated nodes: their controllers, brokers and replicas."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Protocol

from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import PeerChannel, Subject
from duramen.controller.membership.member import ClusterMember
from duramen.service.methods import NOT_READY
from duramen.sim.cluster.network import SimulatedLink, SimulatedNetwork

__all__ = ["SimulatedPeers"]


class _Host(Protocol):
    """A node, as its requests see it."""

    node_id: int
    life: int
    member: ClusterMember | None
    network: SimulatedNetwork

    @property
    def requests(self) -> "SimulatedPeers":
        """Its requests."""


class SimulatedPeers:
    """The network of the member of a node: it asks other nodes, and has their requests handled."""

    def __init__(self, node: _Host, nodes: Callable[[], Mapping[int, _Host]]) -> None:
        self._node = node
        self._nodes = nodes
        self._numbers = count()
        self._asked: dict[SimulatedLink, dict[int, Callable[[Buffer | None], None]]] = {}

    def forget(self) -> None:
        """The process has ended: nobody waits for an answer."""
        self._asked.clear()

    def ask(
        self, node_id: int, body: Buffer, done: Callable[[Buffer | None], None], *,
        subject: Subject = Subject.CONTROLLER,
    ) -> bool:  # fmt: skip
        """Send a request; `done` gets the response, or None without one. Returns whether there is a connection."""
        node = self._node
        link = node.network.link(node.node_id, node_id, PeerChannel.CONTROL)
        if link is None:
            return False
        number = next(self._numbers)
        self._asked.setdefault(link, {})[number] = done
        asked = self._nodes()[node_id].requests.asked
        node.network.say(link, node.node_id, partial(asked, link, number, subject, bytes(body)))
        return True

    def asked(self, link: SimulatedLink, number: int, subject: Subject, body: bytes) -> None:
        """Another node asks this one's controller, or its broker."""
        node = self._node
        life, peer = node.life, self._nodes()[link.peer_of(node.node_id)].requests

        def answer(outcome: bytes) -> None:
            if node.life == life and link.there[node.node_id]:
                node.network.say(link, node.node_id, partial(peer.answered, link, number, outcome))

        if node.member is None:
            NOT_READY.serve(body, answer)
        elif subject is Subject.BROKER:
            node.member.handle_broker_request(body, answer)
        else:
            node.member.handle_controller_request(body, answer)

    def answered(self, link: SimulatedLink, number: int, body: bytes) -> None:
        """What another node answers."""
        done = self._asked.get(link, {}).pop(number, None)
        if done is not None:
            done(body)

    def closed(self, link: SimulatedLink) -> None:
        """A connection is gone: who waits for an answer is told."""
        for done in list(self._asked.pop(link, {}).values()):
            done(None)

    def say(self, node_id: int, pieces: Sequence[Buffer]) -> bool:
        """Send what replicas say to those of another node."""
        node = self._node
        link = node.network.link(node.node_id, node_id, PeerChannel.DATA)
        if link is not None:
            heard = self._nodes()[node_id].requests.heard
            node.network.say(link, node.node_id, partial(heard, node.node_id, b"".join(pieces)))
        return True

    def heard(self, node_id: int, body: bytes) -> None:
        """Replicas of another node say something."""
        if self._node.member is not None:
            self._node.member.heard(node_id, body)
