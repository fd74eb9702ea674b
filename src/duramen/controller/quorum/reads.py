"""Reads for followers from a leader's log and snapshots: batches, and the bytes of a snapshot from a position on."""

from functools import partial

from duramen.base.errors import DuramenError
from duramen.controller.quorum.dependencies import QuorumDependencies, QuorumEffects
from duramen.controller.quorum.snapshot_chunks import FetchChunk, SnapshotBytes
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import EntryBatch, FetchAnswer, SnapshotAnswer
from duramen.raft.roles import RaftRole

__all__ = ["QuorumReads"]


class QuorumReads:
    """Answers fetches once what they want is read; `end` says that nobody is to be answered any more."""

    def __init__(self, machine: RaftMachine, kit: QuorumDependencies, outside: QuorumEffects) -> None:
        self._machine = machine
        self._kit = kit
        self._outside = outside
        self._positions: dict[int, int] = {}  # in snapshots, by who asked for it
        self._over = False

    def end(self) -> None:
        """The replica ends."""
        self._over = True

    def wanted(self, fetch: FetchChunk) -> None:
        """A snapshot is wanted from there on."""
        self._positions[fetch.asked.sender.node_id] = fetch.position

    def serve(self, node_id: int, answer: FetchAnswer) -> None:
        """Send the answer with batches."""

        def read(found: tuple[EntryBatch, ...] | DuramenError) -> None:
            if self._over:
                return
            if isinstance(found, DuramenError):
                self._outside.report(f"node {node_id} cannot be served from the metadata log: {found}")
            elif self._machine.role is RaftRole.LEADER and self._machine.epoch == answer.epoch:
                # Who leads no more may have cut what it read.
                self._outside.send(node_id, answer._replace(batches=found))

        self._kit.log.read(answer.asked.end.offset, self._kit.limits.fetch_bytes, read)

    def serve_snapshot(self, node_id: int, answer: SnapshotAnswer) -> None:
        """Send the bytes of the snapshot that were asked for."""
        position = self._positions.pop(node_id, 0)

        def read(result: tuple[bytes, int] | BaseException | None) -> None:
            if not self._over and isinstance(result, tuple):
                data, size_bytes = result
                chunk = SnapshotBytes(answer.sender, answer.epoch, answer.snapshot, position, size_bytes, data)
                self._outside.send(node_id, chunk)

        kit = self._kit
        kit.worker.submit("read", partial(kit.snapshots.chunk, answer.snapshot, position, kit.limits.chunk_bytes), read)
