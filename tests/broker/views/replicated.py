"""A keyed stream on three brokers that lead, are cut off, are restarted and lose their power as a seed draws.

`committed` is the truth: what the leaders' logs had below their high watermarks, before any of it was compacted. Every
replica that has a snapshot has to show the state of the truth at it, each key once, and so do leases, on every leader.
"""

import random
from collections.abc import Callable
from contextlib import suppress

from tests.broker.several import Several

from duramen.base.errors import DuramenError, SnapshotNotReached, SnapshotTooOld
from duramen.broker.partition import Partition
from duramen.broker.views.running_view import RunningView
from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, records
from duramen.coordinators.lease.leases import position_of
from duramen.keyed.leases import SnapshotLease
from duramen.keyed.view import VisibleRecords
from duramen.metadata.decisions import Definition
from duramen.sim.broker import CallbackResult
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked

__all__ = ["KeyedReplicas"]

NAME = "users"
CONFIG = {
    "keyed": "true", "segment.bytes": "700", "min.cleanable.dirty.ratio": "0", "snapshot.retention.ms": "3000",
    "delete.retention.ms": "1000000", "snapshot.lease.ms": "20000",
}  # fmt: skip
SETTINGS = {"log.cleaner.backoff.ms": 1000}
NODES = (1, 2, 3)
State = dict[bytes, bytes]


class KeyedReplicas:
    """`seen` counts what was checked."""

    def __init__(self, seed: int, least: int = 1) -> None:
        self.random = random.Random(f"{seed}/keyed replicas")
        self.several = several = Several(len(NODES), SETTINGS)
        several.require_in_sync(least)
        created: CallbackResult[None] = CallbackResult()
        several.broker(1).create_stream(Definition(NAME, 1, CONFIG), created)
        several.advance(1000)
        assert created.value is None
        self.place = several.place(NAME)
        self.committed: dict[int, DecodedRecord] = {}
        self.known = 0
        self.number = 0
        self.leases: dict[str, CallbackResult[SnapshotLease]] = {}
        self.checked = self.too_old = self.held = 0
        self._s0: dict[int, int] = {}

    # -- what there is ------------------------------------------------------------------------------

    def partition(self, node_id: int) -> Partition:
        return self.several.broker(node_id).streams.get(NAME).partition(0)

    def view(self, node_id: int) -> RunningView | None:
        broker = self.several.broker(node_id)
        try:
            return broker.views.get(broker.streams.get(NAME), 0)
        except DuramenError:
            return None

    @property
    def leader(self) -> int | None:
        found = self.several.partitions[self.place].leader
        return (
            found if found is not None and found not in self.several.unheard and self.partition(found).leads else None
        )

    def state(self, at: int) -> State:
        """By definition."""
        found: State = {}
        for offset in sorted(self.committed):
            record = self.committed[offset]
            assert record.key is not None
            if offset < at:
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
        return found

    def stored(self, node_id: int, offset: int, end: int) -> dict[int, DecodedRecord]:
        """The records of a node's log below its high watermark."""
        found, hand, log = dict[int, DecodedRecord](), self.several.hands[node_id], self.partition(node_id).log
        while offset < end:
            plan = log.plan_read(offset, 1 << 20)
            if plan is None:
                break
            if isinstance(plan, Blocked):
                hand.store.unblock(plan, lambda _: None)
                hand.settle()
                continue
            answer: CallbackResult[bytes] = CallbackResult()
            read_slice(hand.store, plan, answer)
            hand.settle()
            view = memoryview(answer.value)
            for at, head in batches(view):
                for record in records(view[at : at + head.size]):
                    if offset <= record.offset < end:
                        found[record.offset] = record
            offset = plan.next_offset
        return found

    def learn(self) -> None:
        """Take in what the leader has committed since."""
        leader = self.leader
        if leader is None:
            return
        end = self.partition(leader).log.high_watermark
        if end > self.known:
            self.committed.update(self.stored(leader, self.known, end))
            self.known = end

    # -- what happens -------------------------------------------------------------------------------

    def produce(self, *pairs: tuple[bytes, bytes | None], node_id: int | None = None) -> CallbackResult[int]:
        answer: CallbackResult[int] = CallbackResult()
        node_id = self.leader if node_id is None else node_id
        if node_id is None:
            return answer
        now_ms = self.several.hands[node_id].clock.wall_ms()
        self.partition(node_id).append(encode([BatchInput(now_ms, *pair) for pair in pairs]), answer)
        self.several.settle()
        self.learn()
        return answer

    def advance(self, duration_ms: int) -> None:
        for _ in range(0, duration_ms, 500):
            self.several.advance(500)
            self.learn()

    def open(self, node_id: int, at: int) -> str:
        """Ask a node to hold a snapshot open, as the door does."""
        self.number += 1
        name, broker, view = f"lease-{self.number}", self.several.broker(node_id), self.view(node_id)
        epoch = -1 if view is None or not at else view.partition.log.takeovers.epoch_at(at - 1)
        answer = self.leases[name] = CallbackResult()
        broker.leases.open(broker.streams.get(NAME), name, {0: at}, answer, {0: epoch})
        return name

    def close(self, node_id: int, name: str) -> None:
        answer = self.leases.pop(name)
        broker = self.several.broker(node_id)
        if answer.there and answer.error is None:
            broker.leases.close(broker.streams.get(NAME), name, lambda _: None)

    # -- what has to be -----------------------------------------------------------------------------

    def shown(self, node_id: int, at: int, since: int | None = None) -> dict[bytes, DecodedRecord]:
        """What a replica shows. Raises why it has no such snapshot."""
        view = self.view(node_id)
        if view is None:
            raise SnapshotNotReached("no view")
        answer: CallbackResult[VisibleRecords] = CallbackResult()
        view.shown(at, since, 0, at, answer)
        self.several.hands[node_id].settle()
        offsets = set(answer.value.offsets())
        found: dict[bytes, DecodedRecord] = {}
        for record in self.stored(node_id, 0, at).values():
            if record.offset in offsets:
                assert record.key is not None
                assert record.key not in found, f"node {node_id}, {at}: a key comes twice"
                found[record.key] = record
        return found

    def check(self, node_id: int, at: int, since: int | None = None) -> None:
        """The snapshot, or the state at `since` with the changes, is the state at `at`."""
        state = {} if since is None else self.state(since)
        for key, record in self.shown(node_id, at, since).items():
            state.pop(key, None)
            if record.value is not None:
                state[key] = record.value
        assert state == self.state(at), f"node {node_id}: the snapshot at {at} since {since} is not the state"
        self.checked += 1

    def look(self) -> None:
        """Each replica: its snapshots are states, S0 does not fall while it runs, and its view is not ahead."""
        self.learn()
        for node_id in NODES:
            view = self.view(node_id)
            if view is None:
                continue
            bounds = view.bounds
            assert bounds.position <= self.known or self.leader is None, f"node {node_id} shows what is not committed"
            if bounds.position < max(0, bounds.s0) or bounds.position > self.known:
                continue
            at = self.random.randint(bounds.s0, bounds.position)
            for since in (None, self.random.randint(min(bounds.horizon, at), at)):
                with suppress(SnapshotNotReached, SnapshotTooOld):  # where it moved meanwhile
                    self.check(node_id, at, since)
        self.look_at_leases()

    def look_at_leases(self) -> None:
        """What was granted, and has not ended, is open at the leader, and is a state."""
        leader = self.leader
        if leader is None or (view := self.view(leader)) is None or view.bounds.position < 0:
            return
        now_ms, stream = self.several.hands[leader].clock.wall_ms(), self.several.broker(leader).streams.get(NAME)
        for answer in self.leases.values():
            if not answer.there or answer.error is not None or answer.value.expires_ms <= now_ms + 1000:
                continue
            at = position_of(stream, 0, answer.value)
            if at <= view.bounds.position:
                self.check(leader, at)
                self.held += 1

    # -- a run --------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        actions: list[tuple[int, Callable[[], object]]] = [
            (40, self._produce), (20, lambda: self.advance(self.random.choice((500, 500, 1000, 4000)))),
            (10, self._open), (3, self._close), (8, self._elect), (4, self._cut), (8, self._heal), (3, self._restart),
            (3, self._crash), (2, self._unheard_write),
        ]  # fmt: skip
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            (action,) = self.random.choices([action for _, action in actions], weights)
            action()
            self.several.settle()
            self.look()
        self._heal()
        self.advance(12_000)
        self.look()
        leader = self.leader
        assert leader is not None, "nobody leads in the end"
        for node_id in NODES:
            view = self.view(node_id)
            assert view is not None, f"node {node_id} has no view in the end"
            assert view.bounds.position == self.known, f"the view of node {node_id} stays behind"
            self.check(node_id, self.known)

    def _produce(self) -> None:
        some = [
            (b"k%d" % self.random.randrange(10), None if self.random.random() < 0.2 else b"%d" % self._next())
            for _ in range(self.random.randrange(1, 9))
        ]
        self.produce(*some)

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _unheard_write(self) -> None:
        """Whoever thinks that it leads takes a record, which nobody may see."""
        for node_id in sorted(self.several.unheard):
            if self.partition(node_id).leads:
                self.produce((b"lost", b"%d" % self._next()), node_id=node_id)

    def _open(self) -> None:
        node_id = self.random.choice(NODES)
        view = self.view(node_id)
        if view is not None and 0 <= view.bounds.s0 <= view.bounds.position:
            self.open(node_id, self.random.randint(view.bounds.s0, view.bounds.position))
            self.several.settle()

    def _close(self) -> None:
        if self.leases:
            self.close(self.random.choice(NODES), self.random.choice(list(self.leases)))

    def _elect(self) -> None:
        for place, state in list(self.several.partitions.items()):
            others = [one for one in state.isr if one not in self.several.unheard and one != state.leader]
            if others and self.random.random() < 0.6:
                self.several.elect(place, self.random.choice(others))

    def _cut(self) -> None:
        if not self.several.unheard:
            node_id = self.random.choice(NODES)
            if self.random.random() < 0.5:
                self.several.cut.add(node_id)
            self.several.fence(node_id)

    def _heal(self) -> None:
        for node_id in sorted(self.several.unheard):
            self.several.heal(node_id)
            self.several.hear(node_id)

    def _restart(self) -> None:
        self.several.restart(self.random.choice(NODES))

    def _crash(self) -> None:
        self.several.restart(self.random.choice(NODES), crash=self.random.randrange(1 << 30))
