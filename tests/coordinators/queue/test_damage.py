"""Damaged rows of a queue space whose logs are cut: what is still served, what is refused, and how."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from tests.coordinators.queue.spaces import NAMES, Space
from tests.sim.planted import Bug, Original, Place, planted

from duramen.base.errors import DuramenError, NotCoordinator, OutcomeUnknown, StateDamaged, StorageFailed
from duramen.base.ids import Position
from duramen.base.ports import StateStore
from duramen.codec.batch import BatchInput, encode
from duramen.codec.partitioner import partition_of
from duramen.coordinators.runtime import recovery
from duramen.coordinators.runtime.layout import losses_of, row_prefix
from duramen.queues.machine import Delete, Empty
from duramen.queues.operations import NewEntry
from duramen.service.queues import Read, ReadLimits, queue_of
from duramen.sim.broker import CallbackResult

ENTRIES: Final = 30


class CutSpace(Space):
    """A space whose logs are cut, with a queue in each of its two shards."""

    def __init__(self) -> None:
        super().__init__(checkpoint_records=5, segment_bytes=1024, queue_log_retention_ms=0)
        self.queues = [next(name for name in NAMES if partition_of(name, 2) == shard) for shard in (0, 1)]
        for number in range(ENTRIES):
            self.put(*((queue, b"%d" % number + bytes(100)) for queue in self.queues))
        assert all(self.stream.partition(shard).log.start_offset > 0 for shard in (0, 1))

    def damage(self, checkpoints: int, shard: int = 0) -> None:
        """The rows of a shard are damaged, and in so many of the newest checkpoints."""
        log_id = self.stream.partition(shard).log.id
        self.hand.rows.damage(checkpoints=checkpoints, rows=(row_prefix(log_id, 0), row_prefix(log_id + 1, 0)))

    def sizes(self) -> list[int]:
        return [len(self.values(queue)) for queue in self.queues]

    def read_all(self) -> list[int | DuramenError]:
        """The number of entries of each queue, or the error; a read waits for a restore."""
        answer: CallbackResult[dict[bytes, Any]] = CallbackResult()
        reads = [Read(queue, "start") for queue in self.queues]
        self.requests.retrieve(self.stream, reads, ReadLimits(1000, 1 << 20, 0), answer)
        self.hand.advance(1_000)
        found = [answer.value[queue] for queue in self.queues]
        return [one if isinstance(one, DuramenError) else len(one.entries) for one in found]

    def refusals(self, queue: bytes) -> list[DuramenError | None]:
        """What a read, a write, a count, a lease, a deletion and a producer of a queue get."""
        found = list[DuramenError | None]()
        calls: Sequence[Callable[[], object]] = (
            lambda: self.values(queue), lambda: self.put((queue, b"more")), lambda: self.count(queue),
            lambda: self.lease(queue), lambda: self.submit(queue, Delete, [(Position(1, 1), None)]),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(DuramenError) as refused:
                call()
            found.append(refused.value)
        return [*found, self.produce([BatchInput(0, queue, b"value")], partition_of(queue, 2))]


def an_older_checkpoint_is_used() -> None:
    space = CutSpace()
    space.damage(checkpoints=1)
    for damages in (1, 0):
        assert space.read_all() == [ENTRIES, ENTRIES]
        assert space.hand.broker.coordinators.states.damages == damages
        space.hand.crash()
    assert not space.hand.rows.damaged


def a_shard_is_lost_alone() -> None:
    space = CutSpace()
    space.damage(checkpoints=2)
    lost, whole = space.read_all()
    assert isinstance(lost, StateDamaged)
    assert whole == ENTRIES
    space.put((space.queues[1], b"more"))
    space.hand.crash()
    space.put((space.queues[1], b"more"))
    assert space.read_all()[1] == ENTRIES + 2


def nothing_damaged_is_deleted() -> None:
    space = CutSpace()
    before, kept = dict(space.hand.rows.scan(b"", b"\xff")), len(space.hand.rows.checkpoints())
    space.damage(checkpoints=kept)
    space.hand.crash()
    space.read_all()
    assert before in space.hand.rows.aside
    assert len(space.hand.rows.aside) == 1 + kept


@pytest.mark.parametrize("story", [an_older_checkpoint_is_used, a_shard_is_lost_alone, nothing_damaged_is_deleted])
def test_damage(story: Callable[[], None]) -> None:
    story()


# -- planted bugs -----------------------------------------------------------------------------------


def _readable(_: Original) -> Original:
    def _damage_of(store: StateStore, name: str) -> str:
        del store, name
        return ""

    return _damage_of


def _choose_none(_: Original) -> Original:
    def _choose(log_id: int, sources: Any, chosen: Any, damage: dict[int, str]) -> None:
        del sources, chosen
        damage[log_id] = "something is damaged"

    return _choose


def _remove(_: Original) -> Original:
    def _set_aside(store: StateStore, names: Sequence[str]) -> list[str]:
        for name in names:
            store.remove_checkpoint(name)
        return []

    return _set_aside


@pytest.mark.parametrize(
    ("story", "bug"),
    [
        (an_older_checkpoint_is_used, Bug("not-read", "", (Place(recovery, "_damage_of", _readable),))),
        (a_shard_is_lost_alone, Bug("all-lost", "", (Place(recovery, "_choose", _choose_none),))),
        (nothing_damaged_is_deleted, Bug("deleted", "", (Place(recovery, "_set_aside", _remove),))),
    ],
    ids=lambda one: one.name if isinstance(one, Bug) else "",
)
def test_a_planted_bug_breaks_a_promise(story: Callable[[], None], bug: Bug) -> None:
    with planted(bug), pytest.raises((AssertionError, DuramenError)):
        story()


# -- refusals ---------------------------------------------------------------------------------------


def test_each_request_to_a_lost_shard_gets_an_error_with_a_name_at_once() -> None:
    space = CutSpace()
    space.damage(checkpoints=2)
    space.read_all()
    for _ in range(2):
        refused = space.refusals(space.queues[0])
        assert [type(one) for one in refused] == [StateDamaged] * 6
        assert all("partition 0 of mail" in str(one) for one in refused)
        assert all("the rows are damaged; they are in aside now" in str(one) for one in refused)
        assert space.read_all()[1] == ENTRIES
        space.hand.restart()
        space.hand.advance(1_000)
    assert len(space.hand.broker.coordinators.losses) == 1


def test_names_and_totals_are_those_of_the_other_shards_and_tell_which_is_lost() -> None:
    space = CutSpace()
    space.damage(checkpoints=2)
    space.read_all()
    for limit in (1, 100):
        names, after, lost = list[bytes](), (0, b""), set[int]()
        while True:
            page = space.found_names(limit=limit, after=after)
            names += page.names
            lost |= page.lost.keys()
            if page.next is None:
                break
            after = page.next
        assert (names, lost) == ([space.queues[1]], {0})
        assert "partition 0 of mail" in str(space.found_names().lost[0])
    found = space.totals()
    assert found.shards[0] is None
    assert found.shards[1] is not None
    assert (found.shards[1].entries, [*found.lost]) == (ENTRIES, [0])


def test_the_reason_of_a_loss_survives_the_next_damage_and_ends_with_the_log() -> None:
    space = CutSpace()
    space.damage(checkpoints=2)
    (first, _) = space.read_all()
    log_ids = [space.stream.partition(shard).log.id for shard in (0, 1)]
    space.damage(checkpoints=2, shard=1)
    space.hand.crash()
    lost = space.read_all()
    assert str(lost[0]) == str(first)
    assert isinstance(lost[1], StateDamaged)
    assert losses_of(space.hand.rows).keys() == {*log_ids}
    space.hand.delete("mail")
    space.hand.advance(60_000)
    space.hand.restart()
    space.hand.advance(60_000)
    assert not losses_of(space.hand.rows)


def test_a_lost_shard_is_reported_once_and_the_space_can_be_dropped() -> None:
    space = CutSpace()
    space.damage(checkpoints=2)
    for _ in range(20):
        space.read_all()
        space.hand.advance(5_000)
    reports = [one for one in space.hand.reports if "partition 0 of mail" in one]
    assert len(reports) == 1
    assert "Restore" in reports[0] or "restore" in reports[0]
    assert len(space.hand.reports) < 10
    space.hand.delete("mail")
    space.hand.advance(1_000)
    assert space.hand.broker.coordinators.losses == []


def test_a_shard_whose_log_is_whole_is_built_from_it_again() -> None:
    space = Space(checkpoint_records=5, segment_bytes=1024)  # entries stay in the log for an hour
    space.put(*((name, b"value") for name in NAMES for _ in range(20)))
    for log in (space.stream.partition(shard).log for shard in (0, 1)):
        assert log.start_offset == 0
    space.hand.rows.damage(checkpoints=2)
    space.poll(Read(NAMES[0], "start"))
    space.hand.advance(1_000)
    assert [len(space.values(name)) for name in NAMES] == [20] * len(NAMES)


def test_the_scrubber_of_the_node_finds_damage_before_a_reader_does() -> None:
    space = CutSpace()
    space.damage(checkpoints=1)
    space.hand.advance(120_000)
    assert space.hand.broker.coordinators.states.damages == 1
    assert not space.hand.rows.damaged
    assert space.sizes() == [ENTRIES, ENTRIES]


def test_rows_that_cannot_be_restored_now_are_restored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    space = CutSpace()

    def full(_: object) -> str:
        raise StorageFailed("IO error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(space.hand.rows, "replace", full)
        space.damage(checkpoints=2)
        space.poll(Read(space.queues[0], "start"))
        space.hand.advance(10_000)
        with pytest.raises(StorageFailed, match="No space left"):
            space.put((space.queues[1], b"more"))
        assert "No space left" in str(space.hand.broker.coordinators.problem)
        assert sum("No space left" in one for one in space.hand.reports) == 1
    space.hand.advance(6_000)
    assert space.hand.broker.coordinators.problem is None
    assert space.read_all()[1] == ENTRIES


def test_requests_that_wait_for_rows_that_cannot_be_written_get_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space()
    space.put((NAMES[0], b"before"))

    def failing(_puts: object, _deletes: object) -> None:
        raise StorageFailed("IO error: Input/output error")

    command, batch, appended = (CallbackResult[Any]() for _ in range(3))
    queue, shard = queue_of(space.stream, NAMES[0]), partition_of(NAMES[0], 2)
    with monkeypatch.context() as patch:
        patch.setattr(space.hand.rows, "write", failing)
        space.requests.submit(space.stream, queue, Empty(queue, "purge"), command)
        space.requests.enqueue(space.stream, [(NAMES[0], NewEntry(b"after"))], batch)
        space.stream.partition(shard).append(encode([BatchInput(0, NAMES[0], b"produced")]), appended)
        space.hand.advance(10_000)
        # All may be executed.
        outcomes = [command.error, batch.value.error, appended.error]
        assert [type(one) for one in outcomes] == [NotCoordinator, NotCoordinator, OutcomeUnknown]
        assert all("Input/output" in str(one) for one in outcomes)
        with pytest.raises(StorageFailed, match="Input/output"):
            space.put((NAMES[0], b"refused"))
        assert space.hand.rows.aside == []
        assert "Input/output" in str(space.hand.broker.coordinators.problem)
    space.hand.advance(6_000)
    assert space.hand.broker.coordinators.problem is None
    assert space.values(NAMES[0]) == [b"after"]  # the producer's was there before the purge
