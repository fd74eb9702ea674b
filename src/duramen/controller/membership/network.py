"""The network port of a cluster node. Messages may be lost."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import Subject

__all__ = ["PeerNetwork", "ToControllers"]


class PeerNetwork(Protocol):
    """Transport to the other nodes. Each message is received completely or not at all."""

    def ask(
        self,
        node_id: int,
        body: Buffer,
        done: Callable[[Buffer | None], None],
        *,
        subject: Subject = Subject.CONTROLLER,
    ) -> bool:
        """Send a request to another node's controller or broker.

        `done` gets the response, or None if the connection ends. False if the node is unreachable: then nothing was
        sent, and `done` is never called.
        """

    def say(self, node_id: int, pieces: Sequence[Buffer]) -> bool:
        """Send messages of replicas to those of another node. False if its queue is full: they are lost.

        Without a connection they are lost too; replicas are notified of the next connection.
        """


class ToControllers(NamedTuple):
    """The transport to other nodes' controllers."""

    network: PeerNetwork

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Send a request to another node's controller: see `rpc.caller.PeerTransport`."""
        return self.network.ask(node_id, body, done)
