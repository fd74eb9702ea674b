"""The connected nodes. A connection that this node dialed is preferred over an accepted one."""

from collections.abc import Iterator

from duramen.codec.cluster.channels import PeerChannel
from duramen.codec.cluster.handshake import HandshakeIdentity
from duramen.doors.cluster.link import PeerLink

__all__ = ["ConnectedPeers"]


class ConnectedPeers:
    """Connections on which the secret is proven, by node id and purpose."""

    def __init__(self) -> None:
        self._links: dict[tuple[int, PeerChannel], list[PeerLink]] = {}

    def add(self, link: PeerLink) -> None:
        """A connection is there. Of several of one kind the newest is used."""
        links = self._links.setdefault((link.peer.identity.node_id, link.channel), [])
        links.append(link)
        links.sort(key=lambda one: one.dialed)

    def remove(self, link: PeerLink) -> bool:
        """Remove a connection; False if it is not registered."""
        key = (link.peer.identity.node_id, link.channel)
        links = self._links.get(key, [])
        if link not in links:
            return False
        links.remove(link)
        if not links:
            del self._links[key]
        return True

    def link(self, node_id: int, channel: PeerChannel) -> PeerLink | None:
        """The connection to use."""
        links = self._links.get((node_id, channel))
        return links[-1] if links else None

    def node_ids(self) -> list[int]:
        """The nodes to which there is a connection of any kind."""
        return sorted({node_id for node_id, _ in self._links})

    def has_rival(self, identity: HandshakeIdentity) -> bool:
        """Whether another directory is connected under this node id."""
        return any(
            link.peer.identity.node_id == identity.node_id and link.peer.identity.directory_id != identity.directory_id
            for link in self
        )

    def __iter__(self) -> Iterator[PeerLink]:
        return iter([link for links in self._links.values() for link in links])
