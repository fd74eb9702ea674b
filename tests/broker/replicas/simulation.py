"""A partition's replicas under one seed: processes and machines end, disks fail and are lost, the network is cut.

The witness judges all the while; after a time all is mended, and all has to be well, in the real logs too.
"""

import errno
from functools import partial
from typing import Final

from tests.broker.replicas.node import Node
from tests.broker.replicas.world import CONTROLLER, Totals, World
from tests.replication.broken import Broken, Stuck

from duramen.base.errors import DuramenError
from duramen.codec.batch import Header
from duramen.replication.messages import ReplicaBatch
from duramen.storage.scan import scan_log

TROUBLE_US: Final = 2_000_000
MENDED_US: Final = 1_500_000


class Simulation(World):
    """What goes wrong, how often, is drawn by the seed; `run` lets it."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self.again(self.random.choice((4, 15, 40)), self.produce)
        for every_ms, act in (
            (300, self._kill),
            (300, self._lose_power),
            (250, self._lose_leader),
            (300, self._crash_in_a_call),
            (400, self._fail_calls),
            (800, self._lose_all_power),
            (400, self._partition),
            (300, self.controller.move),
            (700, self._wipe),
            (250, self._trim),
        ):
            often = self.random.choice((0.5, 1, 2, None))
            if often is not None:
                self.again(int(every_ms * often), act)

    def run(self) -> Totals:
        """Trouble, then none, then all has to be well. Raises Broken, Stuck."""
        self.run_until(TROUBLE_US)
        self._mend()
        self.run_until(TROUBLE_US + MENDED_US)
        self._all_is_well()
        self._check_logs()
        self.counts["epochs"] = len(self.witness.leaders)
        self.counts["committed"] = len(self.witness.committed)
        self.counts["acknowledged"] = self.witness.acknowledged
        for node in self.nodes:
            self.counts["cuts"] += node.counts.get("cuts", 0)
            self.counts["restarts"] += node.counts.get("restarts", 0)
        return Totals(**self.counts)

    def _any(self) -> Node:
        return self.random.choice(self.nodes)

    # -- what happens -------------------------------------------------------------------------------

    def _end(self, node: Node, *, power: bool) -> None:
        if node.process is not None:
            self.end(node, power=power)

    def _kill(self) -> None:
        self._end(self._any(), power=False)

    def _lose_power(self) -> None:
        self._end(self._any(), power=True)

    def _lose_leader(self) -> None:
        for node in self.leaders():
            self._end(node, power=True)

    def _lose_all_power(self) -> None:
        for node in self.nodes:
            self._end(node, power=True)

    def _crash_in_a_call(self) -> None:
        node = self._any()
        node.disk.crash_at = node.disk.calls + self.random.randrange(1, 30)

    def _fail_calls(self) -> None:
        """For a while calls of one kind fail now and then."""
        node = self._any()
        failing = self.random.choice((("sync",), ("sync_directory", "rename"), ("write", "create"), ("sync", "write")))
        rate = self.random.choice((0.02, 0.3, 1.0))
        disk = node.disk
        disk.failed_sync = self.random.choice(("keep", "drop", "forget"))

        def interfere(call: str, path: str, size: int) -> int:
            if call in failing and self.random.random() < rate:
                self.say(f"{node.node_id} {call} {path} fails")
                raise OSError(errno.EIO, "the disk")
            return size

        def good_again() -> None:
            if disk.interfere is interfere:
                disk.interfere = None

        disk.interfere = interfere
        self.at(self.random.choice((3_000, 50_000)), good_again)

    def _partition(self) -> None:
        """Halves, or one way only; or a leader that does not know yet that it is alone."""
        ids = [CONTROLLER, 1, 2, 3]
        self.random.shuffle(ids)
        half = set(ids[: self.random.randrange(1, len(ids))])
        cut = {(a, b) for a in ids for b in ids if a in half and b not in half}
        if self.random.random() < 0.7:
            cut |= {(b, a) for a, b in cut}
        for leader in self.leaders():
            if self.random.random() < 0.4:
                cut = {(leader.node_id, CONTROLLER), (CONTROLLER, leader.node_id)}
        self.cut = cut

        def heal() -> None:
            if self.cut is cut:
                self.cut = set()

        self.at(self.random.choice((40_000, 150_000, 400_000)), heal)

    def _trim(self) -> None:
        """Retention on a leader."""
        for node in self.leaders():
            log = node.log
            ends = [batch.first_offset + batch.records for batch in node.content.batches]
            ends = [end for end in ends if end <= log.high_watermark]
            if ends:
                self.guarded(node, partial(node.store.delete_before, log, self.random.choice(ends), lambda _: None))

    def _wipe(self) -> None:
        """A disk is lost, unless it is the last of those that may lead."""
        node = self._any()
        others = self.controller.may_lead - {node.node_id}
        if others and {node_id for node_id, _ in self._holders()} >= others:
            self.wipe(node)

    # -- the end ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        self.say("mended")
        self.troubled = False
        self.cut = set()
        self.slow_us = 1_000
        for node in self.nodes:
            node.disk.crash_at = node.disk.interfere = None
            broken = node.replica is not None and node.replica.error is not None
            if node.process is not None and (broken or not node.ready):
                self.end(node, power=False)
        self.at(MENDED_US * 2 // 3, self.produce)

    def _all_is_well(self) -> None:
        state = self.controller.state
        if state.leader_id is None:
            raise Stuck("nobody leads after all was mended")
        leader = self.nodes[state.leader_id - 1].replica
        if leader is None or not leader.leads or leader.machine.latest_offset != leader.machine.history.end_offset:
            raise Stuck(f"{state.leader_id} has not committed all, long after all was mended")
        if state.in_sync != {1, 2, 3}:
            raise Stuck(f"only {sorted(state.in_sync)} are in sync, long after all was mended")
        for node in self.nodes:
            if node.replica is None or node.log.high_watermark != leader.machine.history.end_offset:
                raise Stuck(f"{node.node_id} has not all that {state.leader_id} has, long after all was mended")

    def _check_logs(self) -> None:
        """The bytes of each log are those that were committed."""
        committed = {one.batch.first_offset: one.batch for one in self.witness.committed}
        # Of what is let go a replica that begins anew does not know who sent it.
        start_offset = max(node.log.start_offset for node in self.nodes)
        values = [data[17:] for at, batch in committed.items() if at >= start_offset and (data := _bytes_of(batch))]
        if len(set(values)) != len(values):
            raise Broken("a batch that was sent again is committed twice")
        for node in self.nodes:
            ended: list[DuramenError | OSError | None] = []
            offsets: list[int] = []

            def check(head: Header, data: bytes, offsets: list[int] = offsets) -> None:
                if committed[head.base_offset].payload != data:
                    raise Broken(f"the bytes at {head.base_offset} are not those that were committed")
                offsets.append(head.next_offset)

            scan_log(node.store, node.log, node.log.start_offset, check, ended.append)
            while not ended and node.process is not None:
                node.process.turn()
            if ended != [None] or (offsets or [node.log.start_offset])[-1] != self.witness.end_offset:
                raise Broken(f"{node.node_id} cannot be read to the end: {ended}, {offsets[-1:]}")
            self.counts["checked"] += len(offsets)


def _bytes_of(batch: ReplicaBatch) -> bytes:
    assert isinstance(batch.payload, bytes)
    return batch.payload
