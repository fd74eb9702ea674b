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
    """Responds to fetches once their data is read; after `end` it sends nothing."""

    def __init__(self, machine: RaftMachine, dependencies: QuorumDependencies, outside: QuorumEffects) -> None:
        self._machine = machine
        self._dependencies = dependencies
        self._outside = outside
        self._positions: dict[int, int] = {}  # in snapshots, by requesting node
        self._over = False

    def end(self) -> None:
        """Stop all responses."""
        self._over = True

    def wanted(self, fetch: FetchChunk) -> None:
        """A node requests a snapshot from that position on."""
        self._positions[fetch.asked.sender.node_id] = fetch.position

    def serve(self, node_id: int, answer: FetchAnswer) -> None:
        """Send a response with batches."""

        def read(found: tuple[EntryBatch, ...] | DuramenError) -> None:
            if self._over:
                return
            if isinstance(found, DuramenError):
                self._outside.report(f"node {node_id} cannot be served from the metadata log: {found}")
            elif self._machine.role is RaftRole.LEADER and self._machine.epoch == answer.epoch:
                # A former leader may have truncated the batches it read.
                self._outside.send(node_id, answer._replace(batches=found))

        self._dependencies.log.read(answer.asked.end.offset, self._dependencies.limits.fetch_bytes, read)

    def serve_snapshot(self, node_id: int, answer: SnapshotAnswer) -> None:
        """Send the requested bytes of the snapshot."""
        position = self._positions.pop(node_id, 0)

        def read(result: tuple[bytes, int] | BaseException | None) -> None:
            if not self._over and isinstance(result, tuple):
                data, size_bytes = result
                chunk = SnapshotBytes(answer.sender, answer.epoch, answer.snapshot, position, size_bytes, data)
                self._outside.send(node_id, chunk)

        dependencies = self._dependencies
        dependencies.worker.submit(
            "read",
            partial(dependencies.snapshots.chunk, answer.snapshot, position, dependencies.limits.chunk_bytes),
            read,
        )
