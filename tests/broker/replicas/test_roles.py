"""What the controller says of a partition, and what becomes of its replica, its log and its producers."""

from collections.abc import Callable, Sequence

import pytest
from tests.broker.replicas.node import PLACE, Rules

from duramen.base.errors import (
    DuramenError,
    LogDamaged,
    NodeStopping,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
)
from duramen.base.ids import Position
from duramen.base.leader_epochs import Takeover
from duramen.base.ports import Buffer
from duramen.broker.partition import Partition
from duramen.broker.replicas.absent import Absent
from duramen.broker.replicas.batches import NO_EPOCH, bytes_of, empty
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.replica import Replica
from duramen.broker.replicas.roles import Replicas
from duramen.broker.replicas.throttle.throttle import CatchUpThrottle
from duramen.codec.batch import BatchInput, encode, header
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.replication.effects import Effect
from duramen.replication.messages import AlterPartition, Reach, ReplicaFetch, ReplicaFetchAnswer, ReplicaRefusal
from duramen.replication.partition import PartitionConfig
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import LogConfig, LogKey
from duramen.storage.log.producers import ANY_ID

Sent = tuple[int, ReplicaFetch | ReplicaFetchAnswer, bytes]


class Around:
    """Node 1 of three on doubles, and what its replicas say to those around them."""

    def __init__(self, least: int = 2, pace: Callable[[StoreOnDoubles], CatchUpThrottle] | None = None) -> None:
        self.doubles = StoreOnDoubles()
        self.least = least
        self.pace = None if pace is None else pace(self.doubles)
        self.sent: list[Sent] = []
        self.failures: list[DuramenError] = []
        self.led: list[int | None] = []
        self.start()

    def start(self) -> None:
        doubles = self.doubles
        self.broker_epoch = doubles.store.node_epoch
        dependencies = ReplicaDependencies(
            1, self.broker_epoch, doubles.store, doubles.clock, doubles.deadlines, self, pace=self.pace
        )
        self.replicas = Replicas(dependencies, self.partition, lambda _: PartitionConfig(self.least))
        self.replicas.on_live_nodes({1, 2, 3})

    def partition(self, place: PartitionId) -> Partition:
        log = self.doubles.store.ensure(LogKey(*place), LogConfig())
        return Partition(Rules(), place.partition, log, self.doubles.store, self.doubles.clock)

    @property
    def replica(self) -> Replica:
        found = self.replicas.get(PLACE)
        assert found is not None
        return found

    def told(self, leader: int | None, epoch: int, in_sync: tuple[int, ...], change: int) -> None:
        self.replicas.on_partition_state(PLACE, PartitionState((1, 2, 3), in_sync, leader, epoch, change))
        self.doubles.settle()

    def append(self, *, all_replicas: bool = True) -> list[tuple[int, DuramenError | None]]:
        answers: list[tuple[int, DuramenError | None]] = []
        batch = encode([BatchInput(self.doubles.clock.wall_ms(), None, b"v")])
        self.replica.partition.append(batch, lambda *answer: answers.append(answer), all_replicas=all_replicas)
        self.doubles.settle()
        return answers

    def fetch(self, node_id: int, end: Position, covered: int, epoch: int = 1) -> None:
        fetch = ReplicaFetch(node_id, 1, epoch, end, (Reach(node_id, 1, covered),), 0, -1, 1, confirmed=True)
        self.replicas.receive(PLACE, fetch)
        self.doubles.settle()

    def send(
        self, place: PartitionId, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer, records: Sequence[Buffer]
    ) -> None:
        assert place == PLACE
        self.sent.append((node_id, message, b"".join(bytes(piece) for piece in records)))

    def propose(self, place: PartitionId, proposal: AlterPartition) -> None:
        assert (place, proposal.node_id) == (PLACE, 1)

    def move_leader(self, place: PartitionId, leader_epoch: int, node_id: int | None) -> None:
        raise AssertionError((place, leader_epoch, node_id))

    def carried_out(self, place: PartitionId, effect: Effect) -> None:
        assert place == PLACE
        del effect

    def leads(self, place: PartitionId, leader_epoch: int | None) -> None:
        assert place == PLACE
        self.led.append(leader_epoch)

    def failed(self, place: PartitionId, error: DuramenError) -> None:
        assert place == PLACE
        self.failures.append(error)

    def report(self, finding: str) -> None:
        raise AssertionError(finding)


def test_a_leader_without_a_session_serves_while_every_in_sync_follower_reaches_it() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    partition = around.replica.partition
    around.replicas.on_controller_session(alive=False)
    around.replicas.unreachable(3)  # not in sync
    around.doubles.settle()
    assert (partition.leads, partition.holds, around.replicas.deposed()) == (True, True, [])
    around.replicas.unreachable(2)
    around.doubles.settle()
    assert (partition.leads, partition.holds, around.replicas.deposed()) == (False, False, [PLACE])
    ((_, error),) = around.append(all_replicas=False)
    assert isinstance(error, NotLeader)
    around.replicas.reachable(2)
    around.doubles.settle()
    assert (partition.leads, partition.holds, around.replicas.deposed()) == (True, True, [])


def test_acks_all_waits_for_all_in_sync_and_acks_one_for_the_own_disk() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    one, everyone = around.append(all_replicas=False), around.append()
    assert (one, everyone) == ([(0, None)], [])
    around.fetch(2, Position(1, 2), 1)
    assert (everyone, around.replica.partition.log.high_watermark) == ([], 1)
    around.fetch(2, Position(1, 2), 2)
    assert everyone == [(1, None)]
    assert around.replica.partition.leader_epoch == 1


def test_a_follower_gets_what_is_not_synced_yet() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    batch = encode([BatchInput(around.doubles.clock.wall_ms(), None, b"v")])
    around.replica.partition.append(batch, lambda *_: None, all_replicas=True)
    around.replicas.receive(PLACE, ReplicaFetch(2, 1, 1, Position(-1, 0), (Reach(2, 1, 0),), 0, -1, 1, confirmed=False))
    _, answer, data = around.sent[-1]
    assert isinstance(answer, ReplicaFetchAnswer)
    assert around.replica.partition.log.synced_offset == 0
    assert (header(data).base_offset, header(data).leader_epoch) == (0, 1)


def test_a_fetch_that_comes_before_its_replica_is_answered_when_that_is_there() -> None:
    around = Around()
    fetch = ReplicaFetch(2, 1, 1, Position(-1, 0), (Reach(2, 1, 0),), 0, -1, 2, confirmed=False)
    around.replicas.receive(PLACE, fetch._replace(number=1))
    around.replicas.receive(PLACE, fetch)
    around.replicas.receive(PLACE, fetch._replace(reports=True))
    assert around.sent == []
    around.told(1, 1, (1, 2), 1)
    ((node_id, answer, _),) = around.sent
    assert isinstance(answer, ReplicaFetchAnswer)
    assert (node_id, answer.asked, answer.refusal) == (2, fetch, None)


def test_a_fetch_waits_for_no_replica_that_is_not_to_be() -> None:
    around = Around()
    fetch = ReplicaFetch(2, 1, 1, Position(-1, 0), (Reach(2, 1, 0),), 0, -1, 1, confirmed=False)
    around.replicas.receive(PLACE, fetch)
    around.replicas.removed(PLACE.stream_id)
    around.told(1, 1, (1, 2), 1)
    assert around.sent == []


def test_too_few_in_sync_take_nothing_and_acknowledge_nothing() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    late = around.append()
    around.told(1, 1, (1,), 2)
    assert isinstance(late[0][1], NotEnoughReplicasAfterAppend)
    assert isinstance(around.append()[0][1], NotEnoughReplicas)
    assert around.append(all_replicas=False) == [(1, None)]


def test_who_does_not_lead_any_more_says_so() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    waiting = around.append()
    around.told(2, 2, (1, 2), 2)
    assert isinstance(waiting[0][1], NotLeader)
    assert isinstance(around.append()[0][1], NotLeader)
    assert isinstance(around.append(all_replicas=False)[0][1], NotLeader)
    assert around.replica.partition.leader_epoch == 2
    node_id, fetch, _ = around.sent[-1]
    assert node_id == 2
    assert isinstance(fetch, ReplicaFetch)
    assert (fetch.end, fetch.reaches[0].covered) == (Position(1, 1), 1)


def test_a_start_begins_with_what_is_on_disk() -> None:
    around = Around(1)
    around.told(1, 3, (1,), 1)
    around.append()
    around.doubles.crash()
    around.start()
    around.told(2, 4, (1, 2), 2)
    machine = around.replica.machine
    assert (machine.history.end, machine.history.synced_offset) == (Position(3, 1), 1)
    assert around.replica.partition.log.high_watermark == 0


def test_an_epoch_that_the_log_has_already_is_not_led_again() -> None:
    around = Around(1)
    around.told(1, 3, (1,), 1)
    around.append()
    around.doubles.crash()
    around.start()
    around.told(1, 3, (1,), 1)
    assert isinstance(around.failures[0], LogDamaged)
    assert around.append()[0][1] is around.failures[0]


def test_a_log_that_was_to_begin_anew_when_the_process_ended_does_so() -> None:
    around = Around()
    log = around.partition(PLACE).log
    (filler,) = empty(0, 7, NO_EPOCH)
    data = bytes_of(filler)
    around.doubles.store.append_ordered(log, data, header(data), None)
    around.doubles.settle()
    around.doubles.kill()
    around.start()
    around.told(2, 1, (2,), 1)
    history = around.replica.machine.history
    assert (history.start_offset, history.end) == (7, Position(-1, 7))
    assert around.replica.partition.log.start_offset == 7


def test_a_log_that_has_lost_records_takes_no_part_while_it_is_counted_on() -> None:
    around = Around()
    around.partition(PLACE).log.damage.append((3, 4))
    around.told(2, 1, (1, 2), 1)
    assert around.replicas.get(PLACE) is None
    assert "3 to 4" in str(around.failures[0])


def test_a_log_that_has_lost_records_is_fetched_again_once_it_is_not_counted_on() -> None:
    around = Around(1)
    around.told(1, 1, (1,), 1)
    for _ in range(4):
        around.append()
    around.doubles.crash()
    around.start()
    around.partition(PLACE).log.damage.append((1, 2))
    around.told(2, 2, (1, 2), 2)
    assert around.replicas.get(PLACE) is None
    findings: list[str] = []
    around.report = findings.append  # type: ignore[method-assign,assignment]
    around.told(2, 2, (2,), 3)
    assert "from offset 1 on" in findings[0]
    node_id, fetch, _ = around.sent[-1]
    assert isinstance(fetch, ReplicaFetch)
    assert (node_id, fetch.end) == (2, Position(1, 1))


def test_replicas_end_whose_streams_are_not_there_any_more() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    around.replicas.only({PLACE.stream_id})
    assert around.replicas.get(PLACE) is not None
    replica = around.replica
    around.replicas.only(set())
    assert around.replicas.get(PLACE) is None
    assert isinstance(replica.error, NodeStopping)
    around.replicas.configured()


def test_a_batch_that_is_written_when_its_replica_ends_is_in_doubt() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    answers: list[tuple[int, DuramenError | None]] = []
    batch = encode([BatchInput(around.doubles.clock.wall_ms(), None, b"v")])
    around.replica.partition.append(batch, lambda *answer: answers.append(answer))
    around.replicas.on_partition_state(PLACE, PartitionState((2, 3), (2, 3), 2, 2, 2))
    around.doubles.settle()
    ((offset, error),) = answers
    assert (offset, type(error)) == (-1, NotLeader)


@pytest.mark.parametrize("removed", [False, True])
def test_a_replica_is_let_go(removed: bool) -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    waiting = around.append()
    replica = around.replica
    if removed:
        around.replicas.removed(PLACE.stream_id)
    else:
        around.replicas.on_partition_state(PLACE, PartitionState((2, 3), (2, 3), 2, 2, 2))
    around.doubles.settle()
    assert around.replicas.get(PLACE) is None
    assert isinstance(waiting[0][1], NotLeader)
    assert isinstance(replica.error, NodeStopping)
    log = around.doubles.store.log(LogKey(*PLACE))
    assert log is not None
    # Who deletes the stream deletes its logs; else there is an empty one in the place of what was there.
    assert log.written is removed
    assert (log.end_offset == 0) is not removed


def test_who_waits_for_a_record_is_told() -> None:
    around = Around()
    around.told(1, 1, (1, 2), 1)
    around.append(all_replicas=False)
    now_ms = around.doubles.clock.monotonic_ms()
    outcomes: list[tuple[str, ReplicationWaitOutcome]] = []

    def wait(name: str, offset: int, wait_ms: int) -> None:
        def told(outcome: ReplicationWaitOutcome) -> None:
            outcomes.append((name, outcome))

        around.replica.wait_replicated(Position(1, offset), told, now_ms + wait_ms)

    wait("committed", 0, 60_000)
    wait("never", 9, 60_000)
    wait("late", 8, 0)
    assert outcomes == [("late", ReplicationWaitOutcome.TIMED_OUT)]
    around.fetch(2, Position(1, 1), 1)
    assert outcomes[1:] == [("committed", ReplicationWaitOutcome.REACHED)]
    replica = around.replica
    around.replicas.on_partition_state(PLACE, PartitionState((2, 3), (2, 3), 2, 2, 2))
    assert outcomes[2:] == [("never", ReplicationWaitOutcome.TIMED_OUT)]
    with pytest.raises(NodeStopping):
        replica.wait_replicated(Position(1, 0), lambda _: None, now_ms)
    with pytest.raises(NotLeader):
        Absent(2, 2).wait_replicated(Position(1, 0), lambda _: None, now_ms)


def test_a_damaged_answer_counts_as_lost() -> None:
    around = Around()
    around.told(2, 1, (1, 2), 1)
    fetch = around.sent[-1][1]
    assert isinstance(fetch, ReplicaFetch)
    findings: list[str] = []
    around.report = findings.append  # type: ignore[method-assign,assignment]
    data = bytearray(encode([BatchInput(1, None, b"v")], leader_epoch=1))
    data[-1] ^= 1
    around.replicas.receive(PLACE, ReplicaFetchAnswer(2, 1, fetch), data)
    assert around.replica.machine.history.end_offset == 0
    assert "node 2" in findings[0]


def test_a_fetch_of_another_epoch_is_refused() -> None:
    around = Around()
    around.told(1, 5, (1, 2), 1)
    around.fetch(2, Position(-1, 0), 0, epoch=4)
    answer = around.sent[-1][1]
    assert isinstance(answer, ReplicaFetchAnswer)
    assert answer.refusal is ReplicaRefusal.FENCED_LEADER_EPOCH


def test_what_compaction_left_out_of_the_leaders_log_leaves_no_hole_here() -> None:
    around = Around()
    around.told(2, 3, (1, 2), 1)
    fetch = around.sent[-1][1]
    assert isinstance(fetch, ReplicaFetch)
    data = b"".join(
        encode([BatchInput(1, b"k", b"v")], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in ((4, 1), (9, 3))
    )
    takeovers = (Takeover(1, 2, 0), Takeover(3, 2, 7))
    around.replicas.receive(PLACE, ReplicaFetchAnswer(2, 3, fetch, high_watermark=10, takeovers=takeovers), data)
    around.doubles.settle()
    log = around.replica.partition.log
    assert (log.high_watermark, log.takeovers.rows()) == (10, [(1, 2, 0), (3, 2, 7)])
    assert [record.offset for record in around.doubles.read(log)] == [4, 9]
    around.doubles.crash()
    around.start()
    around.told(2, 4, (1, 2), 2)
    assert around.replica.machine.history.end == Position(3, 10)
    assert around.doubles.findings == []


def test_a_follower_takes_over_which_producers_its_leader_has_forgotten() -> None:
    around = Around()
    around.told(2, 1, (1, 2), 1)
    fetch = around.sent[-1][1]
    assert isinstance(fetch, ReplicaFetch)
    log = around.replica.partition.log
    data = encode([BatchInput(1, None, b"v")], leader_epoch=1)
    around.replicas.receive(PLACE, ReplicaFetchAnswer(2, 1, fetch, forgotten_id=7), data)
    around.doubles.settle()
    assert (log.end_offset, log.producers.forgotten_id) == (1, 7)
    around.doubles.crash()
    around.start()
    around.told(1, 2, (1, 2), 2)
    around.fetch(2, Position(1, 1), 1, epoch=2)
    answer = around.sent[-1][1]
    assert isinstance(answer, ReplicaFetchAnswer)
    assert answer.forgotten_id == 7


@pytest.mark.parametrize("holds", ["nothing", "records"])
def test_a_leader_that_does_not_say_what_it_has_forgotten_may_have_forgotten_anybody(holds: str) -> None:
    around = Around()
    around.told(2, 1, (1, 2), 1)
    fetch = around.sent[-1][1]
    assert isinstance(fetch, ReplicaFetch)
    log = around.replica.partition.log
    if holds == "records":
        around.replicas.receive(
            PLACE, ReplicaFetchAnswer(2, 1, fetch, forgotten_id=-1), encode([BatchInput(1, None, b"v")], leader_epoch=1)
        )
        around.doubles.settle()
    around.replicas.receive(PLACE, ReplicaFetchAnswer(2, 1, fetch))
    around.doubles.settle()
    assert log.producers.forgotten_id == (ANY_ID if holds == "nothing" else -1)


def test_a_log_that_begins_anew_has_forgotten_whom_its_leader_has() -> None:
    around = Around()
    around.told(2, 1, (1, 2), 1)
    fetch = around.sent[-1][1]
    assert isinstance(fetch, ReplicaFetch)
    refusal = ReplicaFetchAnswer(2, 1, fetch, ReplicaRefusal.OFFSET_OUT_OF_RANGE, start_offset=5, forgotten_id=7)
    around.replicas.receive(PLACE, refusal)
    around.doubles.settle()
    around.doubles.crash()
    log = around.doubles.store.log(LogKey(*PLACE))
    assert log is not None
    assert (log.start_offset, log.end_offset, log.producers.forgotten_id) == (5, 5, 7)
