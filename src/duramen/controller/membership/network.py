"""The network port of a cluster node. Messages handed to it may not arrive."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import Subject

__all__ = ["PeerNetwork", "ToControllers"]


class PeerNetwork(Protocol):
    """Ways to the other nodes. Each message is received whole or not at all."""

    def ask(
        self,
        node_id: int,
        body: Buffer,
        done: Callable[[Buffer | None], None],
        *,
        subject: Subject = Subject.CONTROLLER,
    ) -> bool:
        """Ask another node, its controller or its broker; `done` gets the answer, or None where the connection ends.

        False where there is no way to it now: then nothing was sent, and `done` is never called.
        """

    def say(self, node_id: int, pieces: Sequence[Buffer]) -> bool:
        """Send what replicas say to those of another node. False where too much waits to be sent to it: it is lost.

        Where there is no connection it is lost too, and of the next one replicas are told.
        """


class ToControllers(NamedTuple):
    """The Way to the controllers of other nodes."""

    network: PeerNetwork

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Ask another node's controller: see `rpc.caller.Way`."""
        return self.network.ask(node_id, body, done)
