"""The log of a replica on a disk that crashes while it is begun anew: where it ended is not forgotten."""

import random
from collections.abc import Callable, Iterator

import pytest

from duramen.base.errors import DuramenError, LogDamaged
from duramen.base.ids import StreamId
from duramen.base.metrics import Metrics
from duramen.broker.replicas.log import ReplicaLog
from duramen.broker.replicas.recovery import DamagePolicy, gaps_of, look
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode, stamp
from duramen.metadata.partitions import PartitionState
from duramen.replication.messages import ReplicaBatch
from duramen.replication.replica import ReplicaDiskState
from duramen.sim.cluster.clocks import NodeClock
from duramen.sim.cluster.process import Process
from duramen.sim.machine.clock import SeededRandomness
from duramen.sim.machine.disk import Crashed, MemoryFileSystem
from duramen.sim.machine.scheduler import VirtualClock
from duramen.storage.directory import open_directory
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.log.replication import Replicated
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

RECORDS = 9
LIMITS = StoreLimits(32 << 10, 256 << 10, 128 << 10, 4 << 10, 200)


class Life:
    """A process on a disk, with a log that follows others and has not heard of anything committed."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        true = VirtualClock()
        clock = NodeClock(true, 0)
        self.process = Process(true, clock, random.Random(1), 1_000)
        directory = open_directory(disk, SeededRandomness(1), "the disk")
        handles = Handles(disk, 16)
        recovered = recover(disk, directory.id, handles, lambda _: None)
        self.store = Store(
            disk, self.process, clock, self.process.deadlines, Metrics(), directory, recovered, handles,
            node_id=1, limits=LIMITS,
        )  # fmt: skip
        self.log: Log = self.store.ensure(LogKey(StreamId(int=5), 0), LogConfig(segment_bytes=200))
        self.log.replicated = Replicated(self.log.high_watermark, self.log.end_offset, lambda *_: None)
        self.replica = ReplicaLog(self.store, self.log)

    def append(self, offset: int, done: Callable[[DuramenError | None], None], **producer: int) -> None:
        """A record of epoch 2."""
        data = encode([BatchInput(0, None, b"%d" % offset)], **producer)
        stamp(data, offset, 2)
        self.replica.append(ReplicaBatch(2, offset, 1, payload=memoryview(data)), 1, done)

    def write(self) -> None:
        """Records of epoch 2, synced."""
        ended: list[DuramenError | None] = []
        for offset in range(RECORDS):
            self.append(offset, ended.append)
        self.until(ended, RECORDS)

    def write_in_bulk(self) -> None:
        """As many again, which wait until the log's durability has changed."""
        self.store.take_in_bulk(self.log, bulk=True)
        for offset in range(RECORDS, 2 * RECORDS):
            self.append(offset, lambda _: None)
        assert self.log.end_offset == RECORDS

    def restart(self, start_offset: int) -> None:
        """Begin the log anew."""
        ended: list[DuramenError | None] = []
        self.replica.restart(start_offset, 0, ended.append)
        self.until(ended, 1)

    def opened_again(self) -> ReplicaDiskState:
        """What the replica that comes next finds; the one that there is ends."""
        self.replica.end()
        found: list[ReplicaDiskState | DuramenError] = []
        look(self.store, self.log, found.append)
        while not found:
            self.process.hasten()
        assert isinstance(found[0], ReplicaDiskState)
        return found[0]

    def go_on(self, steps: int) -> None:
        """So much happens, or all that is left to."""
        for _ in range(steps):
            if self.process.next_us is not None:
                self.process.hasten()

    def until(self, ended: list[DuramenError | None], count: int) -> None:
        while len(ended) < count:
            self.process.hasten()
        assert ended == [None] * count


def written() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    Life(disk).write()
    return disk


def crashed(start_offset: int) -> Iterator[MemoryFileSystem]:
    """What a loss of power leaves of it in each call in which the log begins anew, and behind the last."""
    for number in range(1, 1_000):
        disk = written()
        disk.end_process()
        life = Life(disk)
        disk.crash_at = disk.calls + number
        over = False
        try:
            life.restart(start_offset)
            over = True
        except Crashed:
            pass
        disk.crash_at = None
        disk.end_process()
        disk.crash(random.Random(number))
        yield disk
        if over:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("start_offset", [RECORDS, RECORDS + 4])
def test_a_log_that_ends_before_its_new_start_never_ends_earlier(start_offset: int) -> None:
    starts = []
    for disk in crashed(start_offset):
        log = Life(disk).log
        assert log.end_offset >= RECORDS
        assert log.start_offset in (0, start_offset)
        starts.append(log.start_offset)
    assert len(starts) > 1
    assert starts[-1] == start_offset


@pytest.mark.parametrize("start_offset", [RECORDS, RECORDS + 4, RECORDS - 4])
def test_a_start_that_finds_what_a_log_was_begun_anew_with_lets_go_of_it(start_offset: int) -> None:
    found = set()
    for disk in crashed(start_offset):
        life = Life(disk)
        found.add((life.log.start_offset, life.log.end_offset))
        kept = life.opened_again()
        assert (kept.start_offset, kept.end_offset) in {(0, 0), (0, RECORDS), (start_offset, start_offset)}
        if life.log.end_offset == start_offset:
            assert kept.start_offset == start_offset
    assert start_offset == RECORDS or (0, start_offset) in found


@pytest.mark.parametrize("start_offset", [1, RECORDS - 4, RECORDS - 1])
def test_a_log_that_ends_behind_its_new_start_keeps_nothing_of_its_own_from_there_on(start_offset: int) -> None:
    found = []
    for disk in crashed(start_offset):
        log = Life(disk).log
        found.append((log.start_offset, log.end_offset))
        # What it has behind the new start is of another history: it is there with all before it, or gone.
        assert found[-1] == (0, RECORDS) or log.end_offset <= start_offset
    assert len(found) > 1
    assert found[-1] == (start_offset, start_offset)


def test_a_log_begun_anew_knows_nothing_of_earlier_epochs() -> None:
    disk = written()
    disk.end_process()
    life = Life(disk)
    life.restart(RECORDS)
    assert life.log.takeovers.latest_epoch == -1
    assert (life.log.start_offset, life.log.end_offset) == (RECORDS, RECORDS)


def test_a_log_begun_anew_knows_no_producer_that_may_have_written_what_it_lacks() -> None:
    disk = MemoryFileSystem()
    life = Life(disk)
    ended: list[DuramenError | None] = []
    for sequence, attributes in ((0, 0), (1, TRANSACTIONAL)):
        producer = {"producer_id": 7 + sequence, "producer_epoch": 0, "base_sequence": sequence}
        life.append(sequence, ended.append, attributes=attributes, **producer)
    life.until(ended, 2)
    assert life.log.transactions.opened() == [(8, 1)]
    life.restart(RECORDS)
    for _ in range(2):
        assert (life.log.start_offset, life.log.end_offset) == (RECORDS, RECORDS)
        assert life.log.producers.rows() == []
        assert life.log.transactions.opened() == []
        disk.end_process()
        disk.crash(random.Random(1))
        life = Life(disk)


@pytest.mark.parametrize("start_offset", [RECORDS, RECORDS + 20])
def test_a_log_begins_anew_behind_what_still_waits_to_be_appended(start_offset: int) -> None:
    life = Life(MemoryFileSystem())
    life.write()
    life.write_in_bulk()
    life.restart(start_offset)
    assert (life.log.start_offset, life.log.end_offset) == (start_offset, start_offset)


def test_no_transaction_is_shown_as_committed_while_a_log_begins_anew() -> None:
    life = Life(MemoryFileSystem())
    ended: list[DuramenError | None] = []
    life.append(0, ended.append, attributes=TRANSACTIONAL, producer_id=8, producer_epoch=0, base_sequence=0)
    life.until(ended, 1)
    assert life.log.replicated is not None
    life.log.replicated.high_watermark = 1
    life.replica.restart(RECORDS, 1, ended.append)
    seen = set()
    while len(ended) < 2:
        life.process.hasten()
        seen.add((life.log.start_offset, life.log.visible_end(committed=True)))
    assert seen == {(0, 0), (RECORDS, RECORDS)}


def test_a_replica_that_is_opened_again_finds_what_still_waited_to_be_appended_and_all_of_it_synced() -> None:
    life = Life(MemoryFileSystem())
    life.write()
    life.write_in_bulk()
    kept = life.opened_again()
    assert (kept.start_offset, kept.end_offset) == (0, 2 * RECORDS)
    assert (life.log.end_offset, life.log.synced_offset) == (2 * RECORDS, 2 * RECORDS)


@pytest.mark.parametrize("start_offset", [RECORDS - 4, RECORDS + 4])
def test_a_replica_that_is_opened_again_while_its_log_begins_anew_finds_what_stays(start_offset: int) -> None:
    found = []
    for steps in range(60):
        life = Life(MemoryFileSystem())
        life.write()
        ended: list[DuramenError | None] = []
        life.replica.restart(start_offset, 0, ended.append)
        life.go_on(steps)
        kept = life.opened_again()
        found.append((kept.start_offset, kept.end_offset))
        assert life.log.synced_offset == kept.end_offset
        life.go_on(20)
        assert (life.log.start_offset, life.log.end_offset) == found[-1]
    assert found[-1] == (start_offset, start_offset)
    assert all(start == end or end <= RECORDS for start, end in found)


def opened_with_a_gap(gaps: DamagePolicy) -> tuple[Log, ReplicaDiskState | DuramenError]:
    """What a replica finds whose log has lost the offsets 4 and 5 to damage."""
    disk = written()
    disk.end_process()
    life = Life(disk)
    life.log.damage.append((4, 5))
    life.log.replicated = None
    found: list[ReplicaDiskState | DuramenError] = []
    look(life.store, life.log, found.append, gaps)
    while not found:
        life.process.hasten()
    return life.log, found[0]


def test_a_log_that_lost_records_ends_before_them_where_another_replica_has_them() -> None:
    log, kept = opened_with_a_gap(DamagePolicy.CUT)
    assert isinstance(kept, ReplicaDiskState)
    assert (kept.start_offset, kept.end_offset, log.end_offset, log.damage) == (0, 4, 4, [])


def test_a_log_that_lost_records_keeps_those_behind_them_where_nobody_else_has_them() -> None:
    log, kept = opened_with_a_gap(DamagePolicy.KEPT)
    assert isinstance(kept, ReplicaDiskState)
    assert (kept.end_offset, log.damage) == (RECORDS, [(4, 5)])
    with pytest.raises(LogDamaged, match="offsets 4 to 5"):
        log.plan_written(4, 100)


def test_a_log_that_lost_records_is_not_touched_while_others_may_count_on_it() -> None:
    log, refusal = opened_with_a_gap(DamagePolicy.REFUSED)
    assert isinstance(refusal, LogDamaged)
    assert (log.end_offset, log.damage) == (RECORDS, [(4, 5)])


@pytest.mark.parametrize(
    ("leader", "isr", "elr", "gaps"),
    [
        (2, (2, 3), (), DamagePolicy.CUT),
        (2, (2,), (1,), DamagePolicy.REFUSED),
        (2, (1, 2), (), DamagePolicy.REFUSED),
        (None, (), (2,), DamagePolicy.REFUSED),
        (1, (1,), (), DamagePolicy.KEPT),
        (None, (), (1,), DamagePolicy.KEPT),
    ],
)
def test_gaps_are_cut_only_once_nobody_counts_on_the_replica(
    leader: int | None, isr: tuple[int, ...], elr: tuple[int, ...], gaps: DamagePolicy
) -> None:
    assert gaps_of(PartitionState((1, 2, 3), isr, leader, 5, 7, elr), 1) is gaps
