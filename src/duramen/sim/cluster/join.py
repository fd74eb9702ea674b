"""How a simulated node joins a cluster: `doors/cluster/discovery` and `node/cluster/assembly`, without sockets."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from duramen.base.errors import DirectoryUnusable, DuramenError, StorageFailed
from duramen.controller.quorum.ballot_file import BallotFile
from duramen.doors.cluster.formation import from_bytes, to_bytes
from duramen.node.cluster.identity import BelongingFile
from duramen.raft.forming.machine import Forming
from duramen.raft.forming.values import (
    Belongs,
    Effect,
    FormationDiskState,
    FormationHello,
    FormationReply,
    Message,
    PersistFormation,
    SendFormationMessage,
)
from duramen.raft.voters import ReplicaId, Voters
from duramen.sim.cluster.process import Process
from duramen.sim.machine.disk import MemoryFileSystem

__all__ = ["SimulatedDiscovery", "address_of"]

_TURN_US: Final = 200_000

Answer = Callable[[bytes], None]


def address_of(node_id: int) -> str:
    """Where others reach a node."""
    return f"host{node_id}:9000"


class SimulatedDiscovery:
    """Looks for the seeds, and is asked by others, as long as its process runs.

    `ask` sends a message to a node and returns its response; `belongs` is called with the cluster and its first voters,
    once; `failed` if the disk cannot store the promises.
    """

    def __init__(
        self, me: ReplicaId, seeds: Mapping[str, int], files: MemoryFileSystem, process: Process, *,
        ask: Callable[[int, bytes, Callable[[int, str, bytes], None]], None],
        belongs: Callable[[UUID, Voters], None], failed: Callable[[DuramenError], None],
    ) -> None:  # fmt: skip
        """`seeds` are node ids by address. Raises OSError, DirectoryUnusable, LogDamaged."""
        self._seeds = seeds
        self._file = BelongingFile(files)
        self._process = process
        self._ask = ask
        self._belongs = belongs
        self._failed = failed
        self._effects: deque[Effect] = deque()
        self._writing = False
        kept = _kept(self._file, files)
        self.replaces = kept.replaces
        self._forming = Forming(me, kept, seeds)
        self._forming.itself(address_of(me.node_id))
        process.soon(self._turn)

    def asked(self, sender: ReplicaId, body: bytes, answer: Answer) -> None:
        """A node asks."""
        self._forming.asked(_read(sender, body), answer)
        self._do()

    def lost(self, node_id: int) -> None:
        """There is no connection to a node any more."""
        self._forming.lost(address_of(node_id))

    def replace(self, done: Callable[[], None], *, replaces: bool) -> None:
        """Keep whether this directory is to vote in the place of another; then `done`."""

        def kept(result: object) -> None:
            if isinstance(result, BaseException):
                self._failed(StorageFailed(f"what this node keeps of its cluster cannot be written: {result}"))
            else:
                done()

        self.replaces = replaces
        self._process.submit("disk", partial(self._file.replace, replaces=replaces), kept)

    def _answered(self, node_id: int, directory_id: str, body: bytes) -> None:
        hello = _read(ReplicaId(node_id, directory_id), body)
        if isinstance(hello, FormationHello):
            self._forming.answered(address_of(node_id), hello)
            self._do()

    def _turn(self) -> None:
        self._forming.tick()
        self._do()
        if self._forming.cluster_id is None:
            self._process.after(_TURN_US, self._turn)

    def _do(self) -> None:
        """Execute effects, up to the first that has to be on disk."""
        self._effects += self._forming.take()
        while self._effects and not self._writing:
            match self._effects.popleft():
                case PersistFormation(kept):
                    self._writing = True
                    self._process.submit("disk", partial(self._file.write, kept), self._written)
                case SendFormationMessage(address, message):
                    self._ask(self._seeds[address], to_bytes(message), self._answered)
                case FormationReply(answer, hello) if callable(answer):
                    answer(to_bytes(hello))
                case Belongs(cluster_id, voters):
                    self._belongs(cluster_id, voters)

    def _written(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._failed(StorageFailed(f"what this node keeps of its cluster cannot be written: {result}"))
            return
        self._writing = False
        self._do()


def _read(sender: ReplicaId, body: bytes) -> Message:
    return from_bytes(body, (sender.node_id, UUID(sender.directory_id)))


def _kept(file: BelongingFile, files: MemoryFileSystem) -> FormationDiskState:
    """The identity of the directory without a file that names another."""
    kept = file.read()
    if kept.cluster_id is None and BallotFile(files).read() is not None:
        raise DirectoryUnusable("this directory is of a quorum, and what cluster that is of is gone")
    return kept
