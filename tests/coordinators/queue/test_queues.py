"""Queues of a space on a node beside a model: through losses of power, lost rows, and cuts of the log."""

import random

import pytest
from tests.coordinators.queue.spaces import NAMES, SHARDS, SPACE, Space

from duramen.base.errors import (
    BatchInvalid,
    ConfigInvalid,
    DeletionRefused,
    QueueEntryGone,
    QueueHistoryRewritten,
    QueueShardsFixed,
    QueueSpaceNotFound,
    QueueTransactionRefused,
    QueueVersionStale,
)
from duramen.base.ids import Position
from duramen.codec.batch import TRANSACTIONAL, BatchInput
from duramen.codec.partitioner import partition_of
from duramen.queues.machine import Delete, Edit, Replace
from duramen.queues.names import hash_by
from duramen.queues.operations import NewEntry
from duramen.queues.positions import position_text
from duramen.queues.reading import Retrieved
from duramen.queues.runs import QueueEntry
from duramen.service.queues import Read, queue_of, space_of
from duramen.sim.broker import CallbackResult

HOUR_MS = 3_600_000


@pytest.fixture
def space() -> Space:
    return Space()


class Checked:
    """Random operations, of which the model knows all that were acknowledged."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.space = Space(seed, checkpoint_records=12, queue_log_retention_ms="0", segment_bytes="2000")
        self.model: dict[bytes, list[tuple[Position, bytes | None]]] = {name: [] for name in NAMES}
        self.values = 0

    def step(self) -> None:
        name, do = self.chance.choice(NAMES), self.chance.random()
        there = self.model[name]
        if do < 0.5 or not there:
            new = [(self.chance.choice(NAMES), self.value()) for _ in range(self.chance.randrange(1, 9))]
            for (queue, value), at in zip(new, self.space.put(*new), strict=True):
                self.model[queue].append((at, value))
        elif do < 0.7:
            place = self.chance.randrange(len(there))
            value = self.value()
            self.space.submit(name, Edit, [(there[place][0], None, value)])
            there[place] = there[place][0], value
        elif do < 0.85:
            gone = self.chance.sample(there, self.chance.randrange(1, len(there) + 1))
            self.space.submit(name, Delete, [(at, None) for at, _ in gone])
            self.model[name] = [one for one in there if one not in gone]
        else:
            place, value = self.chance.randrange(len(there)), self.value()
            at = self.space.submit(name, Replace, there[place][0], [NewEntry(value)], "a test", "")
            self.model[name] = [*there[:place], (Position(at.leader_epoch, at.offset + 1), value)]

    def value(self) -> bytes:
        self.values += 1
        return b"value %d" % self.values

    def trouble(self) -> None:
        hand, do = self.space.hand, self.chance.random()
        if do < 0.3:
            hand.broker.coordinators.states.checkpoints.make()
            hand.settle()
        elif do < 0.6:
            hand.crash(self.chance.randrange(1000))
        elif do < 0.8:
            hand.restart()
        elif hand.rows.readable:
            hand.rows.damage(checkpoints=0)
            hand.crash(self.chance.randrange(1000))
        hand.settle()
        hand.advance(10_000)

    def check(self) -> None:
        for name in NAMES:
            found = self.space.read(name).entries
            assert [(entry.position, entry.value) for entry in found] == self.model[name]


@pytest.mark.parametrize("seed", range(6))
def test_what_was_acknowledged_is_there_through_all_that_happens_to_a_node(seed: int) -> None:
    run = Checked(seed)
    for _ in range(12):
        for _ in range(run.chance.randrange(1, 12)):
            run.step()
        run.trouble()
        run.check()
    assert max(partition.log.start_offset for partition in run.space.stream.partitions) > 0


def test_operations_answer_with_positions_that_stay(space: Space) -> None:
    first, second, other = space.put((b"ann", b"one"), (b"ann", b"two"), (b"bob", b"three"))
    space.submit(b"ann", Edit, [(first, first.offset, b"1")])
    with pytest.raises(QueueVersionStale):
        space.submit(b"ann", Edit, [(first, first.offset, b"!")])
    space.submit(b"ann", Delete, [(second, None)])
    with pytest.raises(QueueEntryGone):
        space.submit(b"ann", Delete, [(second, None)])
    assert [entry.position for entry in space.read(b"ann").entries] == [first]
    space.hand.restart()
    (third,) = space.put((b"ann", b"four"))
    assert third.leader_epoch > first.leader_epoch
    assert space.values(b"ann") == [b"1", b"four"]
    assert space.values(b"ann", space.read(b"ann", limit=1).next) == [b"four"]
    space.submit(b"ann", Replace, third, [NewEntry(b"five")], "Ann", "a promotion lost events")
    with pytest.raises(QueueHistoryRewritten, match=r"Ann: a promotion lost events") as rewritten:
        space.submit(b"ann", Delete, [(third, None)])
    assert rewritten.value.start == position_text(third)
    assert space.values(b"bob") == [b"three"]
    assert space.read(b"bob").entries[0].position == other


def test_a_poll_hears_of_its_own_queues_alone(space: Space) -> None:
    answer = space.poll(Read(b"ann", "end"), Read(b"eve", "start"), wait_ms=5_000)
    space.put((b"bob", b"x"))
    assert not answer.there
    space.put((b"ann", b"hello"))
    entries: list[QueueEntry] = answer.value[b"ann"].entries
    assert [entry.value for entry in entries] == [b"hello"]
    late = space.poll(Read(b"ann", answer.value[b"ann"].next), wait_ms=5_000)
    space.hand.advance(4_999)
    assert not late.there
    space.hand.advance(1)
    assert late.value[b"ann"] == Retrieved([], answer.value[b"ann"].next)


def test_a_poll_hears_that_what_it_has_read_was_taken_back(space: Space) -> None:
    (at,) = space.put((b"ann", b"one"))
    answer = space.poll(Read(b"ann", space.read(b"ann").next), wait_ms=5_000)
    assert not answer.there
    space.submit(b"ann", Replace, at, (), "", "")
    assert isinstance(answer.value[b"ann"], QueueHistoryRewritten)


def test_the_entries_of_several_queues_are_so_many_in_all(space: Space) -> None:
    space.put(*((name, b"%d" % number) for name in NAMES for number in range(3)))
    found = space.poll(*(Read(name, "start") for name in NAMES), limit=4).value
    assert sum(len(one.entries) for one in found.values()) == 4
    more = space.poll(*(Read(name, one.next) for name, one in found.items())).value
    for name in NAMES:
        both = [*found[name].entries, *more[name].entries]
        assert [entry.value for entry in both] == [b"0", b"1", b"2"]


def test_the_log_is_cut_below_checkpoints_and_not_before_its_time() -> None:
    space = Space(checkpoint_records=50, queue_log_retention_ms=str(HOUR_MS), segment_bytes="2000")
    positions = [space.put((b"ann", b"." * 100))[0] for _ in range(200)]
    log = space.stream.partition(partition_of(b"ann", SHARDS)).log
    space.hand.advance(HOUR_MS - 1)
    assert log.start_offset == 0
    space.hand.advance(1)
    assert 50 <= log.start_offset <= 150
    space.hand.restart()
    assert [entry.position for entry in space.read(b"ann").entries] == positions


@pytest.mark.parametrize("moves", [False, True], ids=["stopped", "running"])
def test_the_log_is_kept_longer_for_a_table_that_lacks_its_operations(*, moves: bool) -> None:
    shard = partition_of(b"ann", SHARDS)
    space = Space(
        checkpoint_records=50, queue_log_retention_ms=str(HOUR_MS), segment_bytes="2000", table_format="delta",
        table_location="/lake", table_retention_multiple="3",
    )  # fmt: skip
    for _ in range(200):
        space.put((b"ann", b"." * 100))
    log = space.stream.partition(shard).log
    space.hand.advance(HOUR_MS)
    assert log.start_offset == 0
    if moves:
        done: CallbackResult[Exception | None] = CallbackResult()
        space.hand.broker.configure_stream("mail", {"table.kept.offsets": f"{shard}:100"}, done)
        space.hand.settle()
        assert done.error is None
        assert 50 <= log.start_offset <= 100
    space.hand.advance(2 * HOUR_MS - 1)
    assert log.start_offset <= (100 if moves else 0)
    space.hand.advance(1)
    assert 50 <= log.start_offset <= 150


def test_a_kafka_producer_puts_entries_into_queues_of_the_shard_that_it_writes_to(space: Space) -> None:
    here, there = (next(name for name in NAMES if partition_of(name, SHARDS) == shard) for shard in (0, 1))
    assert space.produce([BatchInput(5, here, b"from Kafka", ((b"h", b"v"),))]) is None
    (entry,) = space.read(here).entries
    assert (entry.value, entry.timestamp, entry.headers, entry.key) == (b"from Kafka", 5, ((b"h", b"v"),), None)
    for record, why in (
        (BatchInput(5, there, b"v"), "partitioner=murmur2_random"),
        (BatchInput(5, None, b"v"), "needs a name"),
        (BatchInput(5, b"\xff", b"v"), "UTF-8"),
        (BatchInput(5, here, b"v", ((b"duramen-queue-op", b"delete"),)), "is reserved for operations on queues"),
    ):
        error = space.produce([BatchInput(5, here, b"right"), record])
        assert isinstance(error, BatchInvalid)
        assert why in str(error)
        assert [place for place, _ in error.records] == [1]
    refused = space.produce(
        [BatchInput(5, here, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    assert isinstance(refused, QueueTransactionRefused)
    assert space.values(here) == [b"from Kafka"]


def test_an_entry_is_no_operation_whoever_sends_it(space: Space) -> None:
    (at,) = space.put((b"ann", b"one"))
    entry = NewEntry(b"v", headers=((b"duramen-queue-op", b"purge"),))
    with pytest.raises(BatchInvalid, match="the header duramen-queue-op is reserved"):
        space.put((b"ann", b"two"), (b"ann", entry))
    with pytest.raises(BatchInvalid, match="the header duramen-queue-op is reserved"):
        space.submit(b"ann", Replace, at, [entry])
    assert space.values(b"ann") == [b"one"]


def test_what_a_space_cannot_be_is_refused_by_name(space: Space) -> None:
    hand = space.hand
    grown: CallbackResult[None] = CallbackResult()
    hand.broker.add_partitions(SPACE, 4, grown)
    hand.settle()
    assert isinstance(grown.error, QueueShardsFixed)
    for changes in ({"cleanup.policy": "compact"}, {"durability": "os"}, {"kind": "log"}, {"keyed": "true"}):
        changed: CallbackResult[None] = CallbackResult()
        hand.broker.configure_stream(SPACE, changes, changed)
        hand.settle()
        assert isinstance(changed.error, ConfigInvalid)
    deleted: CallbackResult[int] = CallbackResult()
    space.stream.partition(0).delete_before(0, deleted)
    assert isinstance(deleted.error, DeletionRefused)
    hand.create("ordinary")
    with pytest.raises(QueueSpaceNotFound, match="kind=queues"):
        space_of(hand.broker.streams.find("ordinary"), "ordinary")


def test_the_hash_of_names_has_a_secret_key_that_restarts_keep(space: Space) -> None:
    stream = space.stream
    assert len(stream.state.secret) == 16
    space.put((b"ann", b"one"))
    hashed = queue_of(stream, b"ann").hash
    assert hashed != hash_by(stream.id.bytes)(b"ann")
    space.hand.restart()
    space.hand.settle()
    assert queue_of(space.stream, b"ann").hash == hashed
    assert space.values(b"ann") == [b"one"]
    space.hand.create("other", 1, kind="queues")
    space.hand.settle()
    assert space_of(space.hand.broker.streams.find("other"), "other").state.secret != stream.state.secret
