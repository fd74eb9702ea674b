"""Connections to nodes with known addresses: one for votes and small messages, and one for each kind of log."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from duramen.base.errors import SettingInvalid
from duramen.codec.cluster.channels import PeerChannel
from duramen.doors.cluster.dialer import Dialer
from duramen.doors.cluster.door import ClusterDoor
from duramen.doors.cluster.link import PeerLink
from duramen.node.addresses import parse_address

__all__ = ["PeerConnections"]

_log = logging.getLogger("duramen.cluster")

_CHANNELS: Final = (PeerChannel.CONTROL, PeerChannel.METADATA, PeerChannel.DATA)


class PeerConnections:
    """The dialed and the connected nodes; logs each connection that opens or closes."""

    def __init__(self, door: ClusterDoor, node_id: int) -> None:
        """`node_id` is this node's own, which is not dialed."""
        self._door = door
        self._node_id = node_id
        self._addresses: dict[int, str] = {}
        self._dialers: dict[int, list[Dialer]] = {}
        self._there: set[int] = set()

    @property
    def addresses(self) -> Mapping[int, str]:
        """The dialed nodes, with their addresses."""
        return self._addresses

    def reach(self, addresses: Mapping[int, str]) -> None:
        """Keep connections to these nodes, and to no others."""
        wanted = {node_id: where for node_id, where in addresses.items() if node_id != self._node_id}
        for node_id, where in list(self._addresses.items()):
            if wanted.get(node_id) != where:
                self._leave(node_id)
        for node_id, where in wanted.items():
            if node_id not in self._addresses:
                self._dial(node_id, where)

    def _dial(self, node_id: int, where: str) -> None:
        try:
            address = parse_address(f"the address of node {node_id}", where)
        except SettingInvalid as error:
            _log.warning("node %d cannot be reached: %s", node_id, error)
            return
        self._addresses[node_id] = where
        self._dialers[node_id] = [self._door.dial(*address, channel, node_id) for channel in _CHANNELS]

    def _leave(self, node_id: int) -> None:
        del self._addresses[node_id]
        for dialer in self._dialers.pop(node_id):
            dialer.stop()
            if dialer.link is not None:
                dialer.link.close("the node has another address, or is no longer a voter")

    # -- members ------------------------------------------------------------------------------------

    @property
    def there(self) -> Sequence[int]:
        """The nodes with a connection."""
        return sorted(self._there)

    def opened(self, link: PeerLink) -> bool:
        """A connection has opened; returns whether it is the first with that node."""
        node_id = link.peer.identity.node_id
        if node_id in self._there:
            return False
        self._there.add(node_id)
        _log.info("connected to node %d at %s", node_id, link.where)
        return True

    def closed(self, link: PeerLink, why: str) -> bool:
        """A connection is closed; returns whether it was the last with that node."""
        node_id = link.peer.identity.node_id
        if node_id not in self._there or node_id in self._door.peers.node_ids():
            return False
        self._there.remove(node_id)
        _log.warning("the connection to node %d ended: %s", node_id, why)
        return True
