"""A node finds its seeds and joins or forms a cluster with them: executes the decisions of `raft/forming`.

The current obstacle is logged whenever it changes.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.base.hosts import host_port
from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import PeerChannel, Subject
from duramen.doors.cluster.dialer import Dialer
from duramen.doors.cluster.door import ClusterDoor
from duramen.doors.cluster.formation import from_bytes, to_bytes
from duramen.doors.cluster.link import PeerLink
from duramen.doors.cluster.timer import Later, Timer
from duramen.raft.forming.machine import Forming
from duramen.raft.forming.values import (
    Belongs,
    Effect,
    FormationDiskState,
    FormationHello,
    FormationReply,
    PersistFormation,
    SendFormationMessage,
)
from duramen.raft.voters import ReplicaId, Voters

__all__ = ["Gathering"]

_log = logging.getLogger("duramen.cluster")

_TURN_MS: Final = 200


class Gathering:
    """Runs until it is stopped; also once the node belongs to a cluster, because other nodes still ask."""

    def __init__(
        self,
        door: ClusterDoor,
        me: ReplicaId,
        kept: FormationDiskState,
        seeds: Sequence[tuple[str, int]],
        *,
        persist: Callable[[FormationDiskState, Callable[[], None]], None],
        belongs: Callable[[UUID, Voters], None],
        later: Later,
    ) -> None:
        """`persist` writes and syncs, then calls back; `belongs` is called with the cluster, once."""
        self._door = door
        self._seeds = {host_port(*seed): seed for seed in seeds}
        self._forming = Forming(me, kept, self._seeds)
        self._persist = persist
        self._belongs = belongs
        self._later = later
        self._dialers: dict[str, Dialer] = {}
        self._effects: deque[Effect] = deque()
        self._writing = False
        self._obstacle = ""
        self._seen = ""  # the obstacles at the last turn
        self._timer: Timer | None = None

    @property
    def obstacle(self) -> str:
        """Why the node is of no cluster, in one line; empty where it is."""
        return self._forming.obstacle

    def start(self) -> None:
        """Dial the seeds, unless the node is of a cluster already."""
        if self._forming.cluster_id is None:
            self._dialers = {where: self._door.dial(*seed, PeerChannel.CONTROL) for where, seed in self._seeds.items()}
        self._do()
        self._timer = self._later(_TURN_MS, self._turn)

    def stop(self) -> None:
        """Look for the seeds no more. Connections that there are stay."""
        for dialer in self._dialers.values():
            dialer.stop()
        if self._timer is not None:
            self._timer.cancel()

    # -- events of the door -------------------------------------------------------------------------

    def opened(self, link: PeerLink) -> None:
        """There is a connection."""
        dialer = self._dialers.get(link.where)
        if link.dialed and dialer is not None and dialer.link is link:
            self._forming.tick()
            self._do()

    def closed(self, link: PeerLink) -> None:
        """It is gone."""
        if link.dialed and link.channel is PeerChannel.CONTROL:
            self._forming.lost(link.where)

    def found_itself(self, where: str) -> None:
        """One of the seeds is this node."""
        if where in self._dialers:
            self._dialers[where].stop()
            self._forming.itself(where)
            self._do()

    def request(self, link: PeerLink, number: int, body: Buffer) -> None:
        """A node asks. Raises RequestInvalid if its message cannot be decoded."""
        self._forming.asked(from_bytes(body, link.peer.identity[:2]), (link, number))
        self._do()

    def _answered(self, link: PeerLink, body: Buffer | None) -> None:
        """A seed answered, or the connection is gone."""
        if body is None:
            return
        message = from_bytes(body, link.peer.identity[:2])
        if not isinstance(message, FormationHello):
            raise RequestInvalid("a question is no answer")
        self._forming.answered(link.where, message)
        self._do()

    # -- effects ------------------------------------------------------------------------------------

    def _do(self) -> None:
        """Execute effects, up to the first that has to be on disk."""
        self._effects += self._forming.take()
        while self._effects and not self._writing:
            match self._effects.popleft():
                case PersistFormation(kept):
                    self._writing = True
                    self._persist(kept, self._written)
                case SendFormationMessage(address, message):
                    self._say(address, to_bytes(message))
                case FormationReply((PeerLink() as link, int(number)), hello):
                    link.answer(Subject.FORMING, number, to_bytes(hello))
                case Belongs(cluster_id, voters):
                    self._belong(cluster_id, voters)

    def _written(self) -> None:
        self._writing = False
        self._do()

    def _belong(self, cluster_id: UUID, voters: Voters) -> None:
        self.stop()
        self._door.belong(cluster_id)
        self._belongs(cluster_id, voters)

    def _say(self, address: str, body: bytes) -> None:
        dialer = self._dialers.get(address)
        link = None if dialer is None else dialer.link
        if link is not None:
            link.request(Subject.FORMING, partial(self._answered, link), body)

    def _turn(self) -> None:
        """Ask again, and report the obstacles."""
        if self._forming.cluster_id is not None:
            return
        self._forming.tick()
        self._do()
        # A transient obstacle, as at every beginning, is not reported.
        if self.obstacle == self._seen and self.obstacle != self._obstacle:
            self._obstacle = self.obstacle
            _log.warning("this node belongs to no cluster yet: %s", self.obstacle)
        self._seen = self.obstacle
        self._timer = self._later(_TURN_MS, self._turn)
