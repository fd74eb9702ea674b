"""Share partitions on a broker without an event loop: acquiring, locks, what is kept, what comes back after a crash."""

import errno
from collections.abc import Sequence
from typing import Any

import pytest
from tests.coordinators.share.keeping import lags_in_metrics, partitions_of, states, update_measures

from duramen.base.errors import (
    ConfigInvalid,
    DuramenError,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    RecordStateInvalid,
    SessionTimeoutInvalid,
    ShareGroupUnknown,
    StorageFailed,
    StreamNotFound,
)
from duramen.coordinators.group.kinds import CommitMember
from duramen.coordinators.group.share_configs import parse_reset
from duramen.coordinators.share.fetch import ShareFetched, ShareFetcher, ShareLimits
from duramen.coordinators.share.partition import ACCEPT, REJECT, RELEASE, RENEW, Acknowledged
from duramen.coordinators.share.persister import Begin
from duramen.coordinators.share.requests import StateChange
from duramen.coordinators.share.shares import ShareOffset
from duramen.delivery.window import Acquired
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.share_group import ShareHeartbeat, ShareHeartbeatResult
from duramen.groups.share_records import ShareKey
from duramen.groups.values import JoinRequest
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.log.readable import ReadableLog

LIMITS = ShareLimits(1, 1 << 20, 0, 500, 500)
LOCK_MS = 30_000
COUNTED = ("acquired", "accepted", "released", "rejected", "expired")


class Shares:
    """A group `g` that reads stream `a`, each step settled."""

    def __init__(self, settings: dict[str, object] | None = None, *, partitions: int = 1) -> None:
        self.hand = ManualBroker(settings)
        self.hand.create("a", partitions=partitions)
        self.do(self.hand.broker.internal_streams.ensure_shares)
        self.configure({"share.auto.offset.reset": "earliest"})
        self.beat("m", 0, "a")

    def do(self, action: Any, *args: Any) -> None:
        """Do something that ends in `done(None)`; raises its error."""
        answer: CallbackResult[None] = CallbackResult()
        action(*args, answer)
        self.hand.settle()
        if answer.error is not None:
            raise answer.error

    def configure(self, changes: dict[str, str | None]) -> None:
        self.do(self.hand.broker.group_configs.change, "g", changes)

    def beat(self, member: str, epoch: int, *topics: str, group: str = "g") -> ShareHeartbeatResult:
        answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
        heartbeat = ShareHeartbeat(member, epoch, None, topics or None, "c", "/h")
        self.hand.broker.share_groups.heartbeat(group, heartbeat, answer)
        self.hand.settle()
        return answer.value

    def write(self, *values: bytes, partition: int = 0, **batch: Any) -> None:
        self.hand.produce("a", *values, partition=partition, **batch)
        self.hand.settle()

    def key(self, partition: int = 0, group: str = "g") -> ShareKey:
        return ShareKey(group, *self.hand.broker.streams.get("a").partitions[partition].log.key)

    def offset(self) -> ShareOffset | None:
        answer: CallbackResult[ShareOffset | None] = CallbackResult()
        self.hand.broker.sharing.offset(self.key(), answer)
        self.hand.settle()
        return answer.value

    def begin(
        self, owner: str, limits: ShareLimits = LIMITS, keys: Sequence[ShareKey] = ()
    ) -> tuple[CallbackResult[list[ShareFetched]], ShareFetcher]:
        answer: CallbackResult[list[ShareFetched]] = CallbackResult()
        fetcher = self.hand.broker.sharing.fetch(keys or [self.key()], owner, limits, answer)
        self.hand.settle()
        return answer, fetcher

    def take(self, owner: str, **limits: Any) -> list[Acquired]:
        """What `owner` gets at once of the one partition."""
        found = self.begin(owner, LIMITS._replace(**limits))[0].value[0]
        if found.error is not None:
            raise found.error
        return [] if found.taken is None else found.taken.acquired

    def say(self, owner: str, *batches: tuple[int, int, int], partition: int = 0) -> None:
        said = [Acknowledged(first, last, [type_]) for first, last, type_ in batches]
        self.do(self.hand.broker.sharing.acknowledge, self.key(partition), owner, said)


def test_what_is_accepted_is_done_with_also_after_a_crash() -> None:
    shares = Shares()
    shares.write(b"a", b"b", b"c")
    assert shares.take("m") == [Acquired(0, 2, 1)]
    shares.say("m", (0, 0, ACCEPT), (2, 2, ACCEPT))
    shares.hand.crash()
    assert shares.take("n") == [Acquired(1, 1, 1)]
    shares.say("n", (1, 1, ACCEPT))
    shares.write(b"d")
    assert shares.take("n") == [Acquired(3, 3, 1)]


def test_an_acknowledgement_is_not_answered_before_it_is_durable() -> None:
    shares = Shares()
    shares.write(b"a")
    shares.take("m")
    answer: CallbackResult[None] = CallbackResult()
    shares.hand.broker.sharing.acknowledge(shares.key(), "m", [Acknowledged(0, 0, [ACCEPT])], answer)
    assert not answer.there
    shares.hand.crash()
    assert not answer.there
    assert shares.take("n") == [Acquired(0, 0, 1)]


def test_an_acknowledgement_that_cannot_be_stored_is_told_and_takes_nothing_away() -> None:
    shares = Shares()
    shares.write(b"a", b"b")
    shares.take("m")

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    shares.hand.files.interfere = fail
    with pytest.raises(StorageFailed):
        shares.say("m", (0, 0, ACCEPT))
    assert shares.take("n") == []
    shares.hand.advance(LOCK_MS)
    assert shares.take("n") == [Acquired(0, 1, 2)]
    shares.hand.files.interfere = None
    shares.hand.crash()
    assert shares.take("n") == [Acquired(0, 1, 1)]


def test_counts_of_what_was_released_survive_a_crash_and_those_of_locks_do_not() -> None:
    shares = Shares()
    shares.write(b"a", b"b")
    shares.take("m")
    shares.say("m", (0, 0, RELEASE))
    shares.take("m")
    shares.hand.crash()
    assert shares.take("n") == [Acquired(0, 0, 2), Acquired(1, 1, 1)]


def test_a_lock_runs_out_and_who_had_it_may_say_nothing_any_more() -> None:
    shares = Shares()
    shares.write(b"a", b"b")
    shares.take("m")
    shares.hand.advance(LOCK_MS - 1)
    assert shares.take("n") == []
    shares.say("m", (1, 1, RENEW))
    shares.hand.advance(1)
    assert shares.take("n") == [Acquired(0, 0, 2)]
    with pytest.raises(RecordStateInvalid):
        shares.say("m", (0, 0, ACCEPT))
    shares.say("m", (1, 1, ACCEPT))


def test_a_poisoned_record_is_given_up_at_the_limit() -> None:
    shares = Shares()
    shares.configure({"share.delivery.count.limit": "2"})
    shares.write(b"a", b"b")
    shares.take("m")
    shares.say("m", (0, 0, RELEASE), (1, 1, ACCEPT))
    assert shares.take("m") == [Acquired(0, 0, 2)]
    shares.hand.advance(LOCK_MS)
    assert shares.take("m") == []
    shares.hand.crash()
    assert shares.take("m") == []
    assert shares.offset() == ShareOffset(2, 1, 0)


def test_rejected_records_are_not_delivered_again() -> None:
    shares = Shares()
    shares.write(b"a")
    shares.take("m")
    shares.say("m", (0, 0, REJECT))
    assert shares.take("n") == []


def test_a_fetch_waits_for_records() -> None:
    shares = Shares()
    answer, _ = shares.begin("m", LIMITS._replace(max_wait_ms=500))
    shares.hand.advance(100)
    assert not answer.there
    shares.write(b"a")
    taken = answer.value[0].taken
    assert taken is not None
    assert taken.acquired == [Acquired(0, 0, 1)]


def test_a_fetch_waits_for_what_another_lets_go_of() -> None:
    shares = Shares()
    shares.write(b"a")
    shares.take("m")
    waiting, _ = shares.begin("n", LIMITS._replace(max_wait_ms=500))
    assert not waiting.there
    shares.say("m", (0, 0, RELEASE))
    assert waiting.value[0].taken is not None
    nothing, _ = shares.begin("m", LIMITS._replace(max_wait_ms=500))
    shares.hand.advance(500)
    assert nothing.value == [ShareFetched()]


def test_a_fetch_that_nobody_waits_for_acquires_nothing() -> None:
    shares = Shares()
    answer, fetcher = shares.begin("m", LIMITS._replace(max_wait_ms=500))
    fetcher.cancel()
    shares.write(b"a")
    assert not answer.there
    assert shares.take("n") == [Acquired(0, 0, 1)]


def test_min_bytes_are_waited_for() -> None:
    shares = Shares()
    answer, _ = shares.begin("m", LIMITS._replace(max_wait_ms=500, min_bytes=1000))
    shares.write(b"a")
    assert not answer.there
    shares.write(bytes(1000))
    taken = answer.value[0].taken
    assert taken is not None
    assert taken.size == 2


def test_batches_are_acquired_whole_unless_the_limit_is_strict() -> None:
    shares = Shares()
    shares.write(b"a", b"b", b"c")
    shares.write(b"d")
    assert shares.take("m", max_records=2, strict=True) == [Acquired(0, 1, 1)]
    assert shares.take("n", max_records=1) == [Acquired(2, 2, 1)]
    assert shares.take("m", max_records=1) == [Acquired(3, 3, 1)]
    shares.write(*[b"e"] * 10)
    assert shares.take("m", max_records=1) == [Acquired(4, 13, 1)]


def test_batches_of_acquired_records_are_about_as_large_as_was_asked_for() -> None:
    shares = Shares()
    for _ in range(5):
        shares.write(b"a", b"b")
    assert shares.take("m", batch_size=3) == [Acquired(0, 3, 1), Acquired(4, 7, 1), Acquired(8, 9, 1)]


def test_only_the_acquired_batches_are_sent() -> None:
    shares = Shares()
    shares.write(b"a")
    shares.write(b"b")
    shares.take("m", max_records=1)
    taken = shares.begin("n")[0].value[0].taken
    assert taken is not None
    assert taken.records[:8] == (1).to_bytes(8, "big")
    assert taken.acquired == [Acquired(1, 1, 1)]


def test_no_more_than_so_many_records_are_on_their_way() -> None:
    shares = Shares({"group.share.min.partition.max.record.locks": 1})
    shares.configure({"share.partition.max.record.locks": "2"})
    shares.write(b"a")
    shares.write(b"b")
    shares.write(b"c")
    assert shares.take("m") == [Acquired(0, 1, 1)]
    assert shares.take("n") == []
    waiting, _ = shares.begin("n", LIMITS._replace(max_wait_ms=500))
    shares.say("m", (0, 0, ACCEPT))
    taken = waiting.value[0].taken
    assert taken is not None
    assert taken.acquired == [Acquired(2, 2, 1)]


def test_what_a_consumer_holds_is_free_when_its_session_ends() -> None:
    shares = Shares()
    shares.write(b"a", b"b")
    shares.take("m")
    released: CallbackResult[None] = CallbackResult()
    shares.hand.broker.sharing.release("m", [shares.key()], released)
    shares.hand.settle()
    assert released.there
    assert shares.take("n") == [Acquired(0, 1, 2)]


def test_latest_is_where_the_group_was_when_it_came_also_after_a_crash() -> None:
    shares = Shares()
    shares.configure({"share.auto.offset.reset": None})
    shares.write(b"a")
    assert shares.take("m") == []
    shares.write(b"b")
    shares.hand.crash()
    assert shares.take("m") == [Acquired(1, 1, 1)]


def test_a_group_may_begin_so_long_before_now() -> None:
    shares = Shares()
    shares.configure({"share.auto.offset.reset": "by_duration:PT1H"})
    shares.write(b"a")
    shares.hand.advance(2 * 3_600_000)
    shares.write(b"b")
    assert shares.take("m") == [Acquired(1, 1, 1)]


def test_records_that_are_deleted_are_nobodys() -> None:
    shares = Shares()
    shares.write(b"a")
    shares.write(b"b")
    shares.take("m")
    deleted: CallbackResult[int] = CallbackResult()
    shares.hand.broker.streams.get("a").partitions[0].delete_before(1, deleted)
    shares.hand.settle()
    assert shares.take("n") == []
    shares.say("m", (0, 1, ACCEPT))
    assert shares.offset() == ShareOffset(2, 1, 0)


def test_a_group_without_a_share_of_a_partition_gets_nothing() -> None:
    shares = Shares()
    found = shares.begin("m", keys=[shares.key(group="other"), shares.key()._replace(partition=7)])[0].value
    assert [type(one.error) for one in found] == [ShareGroupUnknown, StreamNotFound]
    with pytest.raises(ShareGroupUnknown):
        shares.do(shares.hand.broker.sharing.acknowledge, shares.key(group="other"), "m", [])


def test_a_deleted_stream_takes_its_shares_along() -> None:
    shares = Shares()
    waiting, _ = shares.begin("m", LIMITS._replace(max_wait_ms=500))
    shares.hand.delete("a")
    assert isinstance(waiting.value[0].error, StreamNotFound)
    assert states(shares.hand.broker) == {}


def test_a_new_partition_of_a_stream_that_is_read_is_read_from_its_beginning() -> None:
    shares = Shares()
    shares.configure({"share.auto.offset.reset": None})
    shares.write(b"before")
    assert shares.take("m") == []
    shares.do(shares.hand.broker.add_partitions, "a", 2)
    shares.write(b"first", partition=1)
    shares.beat("m", 1)
    taken = shares.begin("m", keys=[shares.key(1)])[0].value[0].taken
    assert taken is not None
    assert taken.acquired == [Acquired(0, 0, 1)]
    assert shares.take("m") == []


def test_the_state_is_stored_as_a_whole_from_time_to_time_and_the_log_is_cut_below() -> None:
    shares = Shares({"share.coordinator.snapshot.update.records.per.snapshot": 3})
    for index in range(10):
        shares.write(b"a", b"b")
        shares.take("m")
        shares.say("m", (2 * index, 2 * index, ACCEPT), (2 * index + 1, 2 * index + 1, RELEASE))
        shares.take("m")
        shares.say("m", (2 * index + 1, 2 * index + 1, ACCEPT if index % 2 else RELEASE))
        shares.take("m")
        shares.hand.broker.sharing.release("m", [shares.key()], lambda: None)
        shares.hand.settle()
    before = states(shares.hand.broker).get(shares.key())
    assert before is not None
    assert before.snapshot_epoch > 3
    stream = shares.hand.broker.streams.get("__share_group_state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadableLog, "high_watermark", 1)  # other replicas may lack what comes after
        shares.hand.advance(300_000)
    assert all(partition.log.start_offset <= 1 for partition in stream.partitions)
    shares.hand.advance(300_000)
    assert any(partition.log.start_offset > 1 for partition in stream.partitions)
    shares.hand.crash()
    shares.hand.stop()
    shares.hand.rows = MemoryStateStore()
    shares.hand.start()
    after = states(shares.hand.broker).get(shares.key())
    assert after is not None
    assert after.states == before.states
    assert after.start_offset == before.start_offset


def test_a_group_that_was_deleted_does_not_come_back_when_the_rows_fall_back() -> None:
    shares = Shares()
    shares.write(b"a")
    shares.take("m")
    shares.say("m", (0, 0, ACCEPT))
    hand = shares.hand
    hand.rows.flush()
    shares.beat("m", -1)
    shares.do(hand.broker.groups.delete, "g")
    hand.broker.share_nodes.tidy()
    hand.settle()
    for seed in range(5):
        hand.crash(seed)
        assert hand.broker.groups.listing() == []


def test_share_partitions_that_nobody_uses_are_forgotten_until_they_are_used() -> None:
    shares = Shares()
    shares.write(b"a", b"b")
    shares.take("m")
    shares.say("m", (0, 0, ACCEPT))
    shares.hand.advance(1_000_000)
    assert shares.hand.broker.sharing._partitions == {}
    assert shares.take("m") == [Acquired(1, 1, 2)]


def test_a_group_is_listed_described_and_deleted() -> None:
    shares = Shares()
    groups = shares.hand.broker.groups
    assert [(line.group_id, line.kind, line.state) for line in groups.listing()] == [("g", "share", "Stable")]
    assert groups.describe("g").state == "Stable"
    with pytest.raises(GroupNotEmpty):
        shares.do(groups.delete, "g")
    shares.beat("m", -1)
    assert [(line.kind, line.state) for line in groups.listing()] == [("share", "Empty")]
    shares.hand.crash()
    groups = shares.hand.broker.groups
    assert [(line.group_id, line.kind) for line in groups.listing()] == [("g", "share")]
    shares.do(groups.delete, "g")
    shares.hand.crash()
    assert shares.hand.broker.groups.listing() == []


def test_members_are_unknown_after_a_restart_and_join_again() -> None:
    shares = Shares()
    shares.hand.restart()
    with pytest.raises(DuramenError, match="no member"):
        shares.beat("m", 1)
    assert shares.beat("m", 0, "a").assignment == frozenset({(shares.key().topic_id, 0)})


def test_a_silent_member_is_given_up() -> None:
    shares = Shares()
    shares.hand.advance(45_000)
    assert len(shares.hand.broker.share_groups.find("g")) == 0


def test_new_partitions_of_a_stream_come_to_its_members() -> None:
    shares = Shares()
    shares.do(shares.hand.broker.add_partitions, "a", 2)
    result = shares.beat("m", 1)
    assert result.assignment == frozenset({(shares.key().topic_id, 0), (shares.key().topic_id, 1)})
    shares.write(b"x", partition=1)
    taken = shares.begin("m", keys=[shares.key(1)])[0].value[0].taken
    assert taken is not None


def test_a_group_id_is_of_one_kind() -> None:
    shares = Shares()
    groups, nobody = shares.hand.broker.groups, CommitMember("", None, -1)
    with pytest.raises(GroupNotFound):
        shares.do(groups.commit, "g", nobody, [])
    with pytest.raises(GroupNotFound):
        groups.check_transactional("g", nobody)
    with pytest.raises(GroupNotFound):
        shares.do(groups.delete_offsets, "g", [OffsetKey("g", "a", 0)])
    request = JoinRequest("", None, "new", False, "c", "/h", 10_000, 60_000, "consumer", [("range", b"")])
    with pytest.raises(InconsistentProtocol):
        shares.do(groups.join, "g", request)
    with pytest.raises(SessionTimeoutInvalid):
        shares.do(groups.join, "g", request._replace(session_timeout_ms=1))


def test_a_group_that_has_offsets_is_no_share_group() -> None:
    shares = Shares()
    shares.do(shares.hand.broker.internal_streams.ensure_offsets)
    committed = [(OffsetKey("simple", "a", 0), CommittedOffset(5, -1, "", 0))]
    shares.do(shares.hand.broker.groups.commit, "simple", CommitMember("", None, -1), committed)
    with pytest.raises(GroupNotFound):
        shares.beat("m", 0, "a", group="simple")
    with pytest.raises(GroupNotFound):
        shares.do(shares.hand.broker.share_groups.alter_offsets, "simple", [])
    shares.do(shares.hand.broker.groups.delete, "simple")
    assert shares.beat("m", 0, "a", group="simple").assignment


def test_what_happens_to_records_is_counted() -> None:
    shares = Shares()
    shares.write(b"a", b"b", b"c", b"d")
    shares.take("m")
    shares.say("m", (0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT))
    shares.hand.advance(LOCK_MS)
    found = {what: shares.hand.metrics.counter("duramen_share_records_total", what).value for what in COUNTED}
    assert found == {"acquired": 4, "accepted": 1, "released": 1, "rejected": 1, "expired": 1}


def test_an_operator_moves_a_group_that_has_no_members() -> None:
    shares = Shares(partitions=2)
    shares.write(b"a", b"b", b"c")
    shares.take("m")
    shares.say("m", (0, 2, ACCEPT))
    groups = shares.hand.broker.share_groups
    first = shares.hand.broker.streams.get("a").partitions[0]
    assert partitions_of(shares.hand.broker, "g") == {"a": [0, 1]}
    with pytest.raises(GroupNotEmpty):
        shares.do(groups.alter_offsets, "g", [(first.log.key, 1)])
    shares.do(groups.alter_offsets, "new", [(first.log.key, 1)])  # as in Apache Kafka, that makes the group
    assert partitions_of(shares.hand.broker, "new") == {"a": [0]}
    shares.beat("m", -1)
    shares.do(groups.alter_offsets, "g", [(first.log.key, 1)])
    assert shares.offset() == ShareOffset(1, 1, 2)
    shares.hand.crash()
    assert shares.take("m") == [Acquired(1, 2, 1)]
    shares.do(shares.hand.broker.share_groups.delete_offsets, "g", shares.hand.broker.streams.get("a").id)
    assert shares.offset() is None


def test_lag_counts_what_is_not_done_with() -> None:
    shares = Shares()
    assert shares.offset() == ShareOffset(-1, 1, -1)
    shares.write(b"a", b"b", b"c", b"d")
    shares.take("m")
    shares.say("m", (1, 2, ACCEPT))
    assert shares.offset() == ShareOffset(0, 1, 2)


def test_metrics_show_the_lag_of_as_many_partitions_as_they_may() -> None:
    shares = Shares({"metrics.partitions.max": 2}, partitions=3)
    shares.write(b"a", b"b", b"c", b"d")
    shares.write(b"e", partition=1)
    for partition in range(3):
        shares.begin("m", keys=[shares.key(partition)])
    shares.say("m", (0, 1, ACCEPT))
    shares.say("m", (0, 0, ACCEPT), partition=1)
    shares.hand.advance(3000)
    update_measures(shares.hand.broker, shares.hand.settle)
    assert lags_in_metrics(shares.hand.broker) == {("g", "a", "0"): (2, 3), ("g", "a", "1"): (0, 0)}
    assert shares.hand.broker.metrics.computed()["duramen_group_lag_records"].left_out() == 1
    shares.hand.delete("a")
    update_measures(shares.hand.broker, shares.hand.settle)
    assert lags_in_metrics(shares.hand.broker) == {}


def test_what_a_group_reads_is_prepared_by_the_next_heartbeat_of_any_member() -> None:
    shares = Shares()
    shares.beat("m", 1, "a", "b")
    shares.hand.create("b", partitions=2)
    assert partitions_of(shares.hand.broker, "g") == {"a": [0]}
    shares.beat("n", 0, "there is none")
    assert partitions_of(shares.hand.broker, "g") == {"a": [0], "b": [0, 1]}


def test_configs_of_groups_are_durable_and_checked() -> None:
    shares = Shares()
    wrong: list[dict[str, str | None]] = [
        {"share.record.lock.duration.ms": "1"}, {"share.auto.offset.reset": "by_duration:P"}, {"nonsense": "1"},
        {"share.isolation.level": "chaos"},
    ]  # fmt: skip
    for changes in wrong:
        with pytest.raises(ConfigInvalid):
            shares.configure(changes)
    shares.configure({"share.record.lock.duration.ms": "20s", "share.isolation.level": "read_committed"})
    shares.hand.crash()
    config = shares.hand.broker.sharing.config("g")
    assert (config.lock_ms, config.committed, config.reset.latest) == (20_000, True, False)
    shares.configure({"share.record.lock.duration.ms": None})
    assert shares.hand.broker.sharing.config("g").lock_ms == LOCK_MS


@pytest.mark.parametrize(
    ("text", "since_ms"),
    [("P1DT2H", 93_600_000), ("PT1.5S", 1500), ("pt3m", 180_000), ("P2D", 172_800_000)],
)
def test_durations(text: str, since_ms: int) -> None:
    assert parse_reset(f"by_duration:{text}").since_ms == since_ms
    with pytest.raises(ConfigInvalid):
        parse_reset(text)


def test_states_of_which_no_group_is_stored_make_the_group_at_a_start() -> None:
    shares = Shares()
    begins = [Begin(shares.key(group="older"), 0, 1)]
    shares.do(shares.hand.broker.share_nodes._persister.change, StateChange.BEGIN, begins, lambda: 0)
    assert [line.group_id for line in shares.hand.broker.groups.listing()] == ["g"]
    shares.hand.restart()
    assert sorted(line.group_id for line in shares.hand.broker.groups.listing()) == ["g", "older"]
    assert partitions_of(shares.hand.broker, "older") == {"a": [0]}
