"""Shared parts of everything that asks other nodes on behalf of clients."""

from typing import Final, NamedTuple

from duramen.broker.partition import Partition
from duramen.rpc.caller import Caller
from duramen.rpc.retry import KnownLeader
from duramen.service.broker import Broker
from duramen.service.forwarding.memory import Room

__all__ = ["FIRST_RETRY_MS", "LAST_RETRY_MS", "Router"]

FIRST_RETRY_MS: Final = 20
LAST_RETRY_MS: Final = 500
"""How soon a leader is looked for again: twice as late each time."""


class Router(NamedTuple):
    """The broker of this node, the connections to others, and the memory of forwarded requests."""

    broker: Broker
    caller: Caller
    room: Room

    def leader(self, partition: Partition) -> KnownLeader:
        """The leader of a partition, as far as known here."""
        state = self.broker.membership.partition(partition.place)
        return KnownLeader(state.leader, state.leader_epoch)
