"""The door between nodes: listens, dials, tracks connected nodes, and logs which nodes are not connected, and why.

A refusal of one kind is logged once per address; otherwise a peer that dials every second would fill the log.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from duramen.base.hosts import host_port
from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import PeerChannel, Subject
from duramen.codec.cluster.handshake import (
    ANYBODY,
    NONCE_BYTES,
    Handshake,
    HandshakeIdentity,
    HandshakeReason,
    HandshakeSide,
)
from duramen.doors.cluster.dialer import Dialer
from duramen.doors.cluster.link import PeerLink
from duramen.doors.cluster.peers import ConnectedPeers
from duramen.doors.cluster.timer import TIMING, Backoff, Later, LinkTiming

__all__ = ["ClusterDoor", "DoorOwner"]

_log = logging.getLogger("duramen.cluster")

_MOST_UNPROVEN: Final = 64
_MOST_SAID: Final = 1000

_CAME_TO_A_CLUSTER: Final = "this node has joined a cluster"


class DoorOwner(Protocol):
    """Receives the events between nodes."""

    def opened(self, link: PeerLink) -> None:
        """A node is connected for a purpose: `link.peer` has both."""

    def closed(self, link: PeerLink, why: str) -> None:
        """Note that a connection has ended: the first sign that a node has failed."""

    def found_itself(self, where: str) -> None:
        """The node that listens at that address is this one."""

    def message(self, link: PeerLink, subject: Subject, body: Buffer) -> None:
        """A message came. Raises RequestInvalid where it cannot be read: the connection ends."""

    def request(self, link: PeerLink, subject: Subject, number: int, body: Buffer) -> None:
        """A request came: `link.answer(subject, number, …)`, now or later. Raises as `message`."""


class ClusterDoor:
    """All connections of this node with others."""

    def __init__(
        self,
        owner: DoorOwner,
        me: HandshakeIdentity,
        secret: bytes,
        *,
        token: Callable[[int], bytes],
        chance: Callable[[int], int],
        later: Later,
        timing: LinkTiming = TIMING,
    ) -> None:
        """`token` gives so many random bytes, `chance` a random number below the given one."""
        self.peers = ConnectedPeers()
        self._owner = owner
        self._me = me
        self._secret = secret
        self._token = token
        self._chance = chance
        self._later = later
        self._timing = timing
        self._servers: list[asyncio.Server] = []
        self._dialers: list[Dialer] = []
        self._unproven: list[PeerLink] = []  # of those that dialed us, the oldest first
        self._said: dict[str, str] = {}

    # -- the owner's side ---------------------------------------------------------------------------

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Take connections on these, which are bound."""
        loop = asyncio.get_running_loop()
        self._servers += [await loop.create_server(self._welcome, sock=one) for one in sockets]

    def dial(self, host: str, port: int, channel: PeerChannel, looked_for: int = ANYBODY) -> Dialer:
        """Keep a connection to that address, where the node `looked_for` is to be, until the dialer is closed."""
        where = host_port(host, port)

        def make() -> PeerLink:
            nonce = self._token(NONCE_BYTES)
            handshake = Handshake(
                HandshakeSide.DIALER, self._me, self._secret, nonce, channel=channel, looked_for=looked_for
            )
            return PeerLink(self, handshake, self._later, self._timing, where)

        backoff = Backoff(self._timing, self._chance)
        dialer = Dialer(host, port, make, partial(self._unreached, where), backoff, self._later, self._timing)
        self._dialers.append(dialer)
        return dialer

    def belong(self, cluster_id: UUID) -> None:
        """The node is of this cluster now. Connections that were made before are made again, so that each proves it."""
        self._me = self._me._replace(cluster_id=cluster_id)
        for link in [*self.peers, *self._unproven]:
            link.close(_CAME_TO_A_CLUSTER)

    async def close(self) -> None:
        """Stop listening and dialing, and close all connections."""
        for server in self._servers:
            server.close()
        for dialer in self._dialers:
            await dialer.close()
        links = [*self.peers, *self._unproven]
        for link in links:
            link.close("this node is stopping")
        for link in links:
            await link.ended.wait()
        for server in self._servers:
            await server.wait_closed()

    # -- connections --------------------------------------------------------------------------------

    def _welcome(self) -> PeerLink:
        """A stranger has dialed. The one that has kept us waiting longest goes where there are too many."""
        if len(self._unproven) >= _MOST_UNPROVEN:
            self._unproven[0].abort("too many others have not proven the cluster secret")
        handshake = Handshake(
            HandshakeSide.LISTENER, self._me, self._secret, self._token(NONCE_BYTES), rival=self.peers.has_rival
        )
        link = PeerLink(self, handshake, self._later, self._timing)
        self._unproven.append(link)
        return link

    def opened(self, link: PeerLink) -> None:
        """The secret is proven."""
        if link in self._unproven:
            self._unproven.remove(link)
        if link.me != self._me:
            link.close(_CAME_TO_A_CLUSTER)
            return
        self.peers.add(link)
        self._said.pop(_who(link), None)
        self._owner.opened(link)

    def closed(self, link: PeerLink, why: str) -> None:
        """A connection is gone."""
        if link in self._unproven:
            self._unproven.remove(link)
        if link.proven:
            if self.peers.remove(link):
                self._owner.closed(link, why)
        elif link.refusal is not None and link.refusal.reason is HandshakeReason.ITSELF:
            if link.dialed:
                self._owner.found_itself(link.where)
        elif link.dialed:
            self._unreached(link.where, why)
        else:
            self._say(_who(link), why, f"a connection from {link.where} was refused: {why}")

    def message(self, link: PeerLink, subject: Subject, body: Buffer) -> None:
        """A message came."""
        self._owner.message(link, subject, body)

    def request(self, link: PeerLink, subject: Subject, number: int, body: Buffer) -> None:
        """A request came."""
        self._owner.request(link, subject, number, body)

    # -- descriptions -------------------------------------------------------------------------------

    def _unreached(self, where: str, why: str) -> None:
        self._say(where, why, f"there is no connection to the node at {where}: {why}")

    def _say(self, who: str, why: str, line: str) -> None:
        if self._said.get(who) == why:
            return
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said[who] = why
        _log.warning(line)


def _who(link: PeerLink) -> str:
    """The dialed node, or the host of an incoming connection."""
    return link.where if link.dialed else f"from {link.where.rpartition(':')[0]}"
