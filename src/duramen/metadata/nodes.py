"""The nodes of a cluster in the metadata log: registrations, fencing and draining. Pure."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from duramen.metadata.events import (
    Endpoint,
    NodeDraining,
    NodeEvent,
    NodeFenced,
    NodeRegistered,
    NodeUnfenced,
    NodeUnregistered,
)

__all__ = ["BROKER_ROLE", "CONTROLLER_ROLE", "Node", "Nodes"]

BROKER_ROLE = "broker"
"""The role of holding partitions; a node that registered without roles has it."""
CONTROLLER_ROLE = "controller"
"""The role of voting in the quorum."""


class Node(NamedTuple):
    """A node's registration, and its state; `epoch` identifies the registration.

    A `draining` node is about to stop, or `unwritable`: its storage accepts no writes.
    """

    id: int
    directory_id: str
    incarnation_id: str = ""
    epoch: int = 0
    rack: str | None = None
    roles: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    least_feature_level: int = 0
    latest_feature_level: int = 0
    fenced: bool = False
    draining: bool = False
    remembers: bool = False
    unwritable: bool = False

    @classmethod
    def of(cls, event: NodeRegistered) -> "Node":
        """The node that the event registers."""
        return cls(
            event.node_id,
            event.directory_id,
            event.incarnation_id,
            event.epoch,
            event.rack,
            event.roles,
            event.endpoints,
            event.least_feature_level,
            event.latest_feature_level,
            event.fenced,
            remembers=event.remembers,
        )

    @property
    def events(self) -> tuple[NodeEvent, ...]:
        """The events that create this node."""
        registered = NodeRegistered(
            self.id,
            self.directory_id,
            self.incarnation_id,
            self.epoch,
            self.rack,
            self.roles,
            self.endpoints,
            self.least_feature_level,
            self.latest_feature_level,
            self.fenced,
            self.remembers,
        )
        draining = NodeDraining(self.id, self.epoch, self.unwritable)
        return (registered, draining) if self.draining else (registered,)

    @property
    def holds_partitions(self) -> bool:
        """Whether the node may hold partitions."""
        return not self.roles or BROKER_ROLE in self.roles

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be placed on the node: it holds partitions and is not draining."""
        return self.holds_partitions and not self.draining


class Nodes:
    """Nodes by id, in the order of their ids.

    `live` are those that are registered and not fenced, `draining` those that are about to stop or accept no writes.
    """

    __slots__ = ("_nodes", "draining", "live")

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self.live: frozenset[int] = frozenset()
        self.draining: frozenset[int] = frozenset()

    def __iter__(self) -> Iterator[Node]:
        return (self._nodes[node_id] for node_id in sorted(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._nodes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]  # they change

    @property
    def highest_epoch(self) -> int:
        """The epoch of the newest registration; 0 without one."""
        return max((node.epoch for node in self._nodes.values()), default=0)

    @property
    def directories(self) -> Mapping[int, str]:
        """Directory ids by node id."""
        return {node_id: node.directory_id for node_id, node in self._nodes.items()}

    @property
    def active(self) -> frozenset[int]:
        """The live nodes that accept writes and are not about to stop: only they can become in-sync or leaders."""
        return self.live - self.draining

    def get(self, node_id: int | None) -> Node | None:
        """The node with that id."""
        return None if node_id is None else self._nodes.get(node_id)

    def of_directory(self, directory_id: str) -> Node | None:
        """The node with this data directory."""
        return next((node for node in self if node.directory_id == directory_id), None)

    def copy(self) -> "Nodes":
        """A copy of the nodes."""
        other = Nodes()
        other._nodes = dict(self._nodes)
        other.live, other.draining = self.live, self.draining
        return other

    def after(self, *events: NodeEvent) -> "Nodes":
        """A copy of these nodes with the events applied."""
        other = self.copy()
        for event in events:
            other.apply(event)
        return other

    def apply(self, event: NodeEvent) -> None:
        """Apply an event; one about an outdated registration changes nothing."""
        if isinstance(event, NodeRegistered):
            self._register(event)
        else:
            self._change(event)
        self.live = frozenset(node.id for node in self if not node.fenced)
        self.draining = frozenset(node.id for node in self if node.draining)

    def _change(self, event: NodeFenced | NodeUnfenced | NodeDraining | NodeUnregistered) -> None:
        node = self._nodes.get(event.node_id)
        if node is None or node.epoch != event.epoch:
            return
        match event:
            case NodeFenced():
                self._nodes[node.id] = node._replace(fenced=True)
            case NodeUnfenced():
                self._nodes[node.id] = node._replace(fenced=False)
            case NodeDraining():
                self._nodes[node.id] = node._replace(draining=True, unwritable=event.unwritable)
            case NodeUnregistered():
                del self._nodes[node.id]

    def _register(self, event: NodeRegistered) -> None:
        # A data directory is registered as one node: under its last id.
        self._nodes = {known.id: known for known in self if known.directory_id != event.directory_id}
        self._nodes[event.node_id] = Node.of(event)
