"""The coordinator: groups and offsets on a broker, their storing, their administration, and what time does to them."""

import errno

import pytest

from duramen.base.errors import (
    DuramenError,
    GroupIdInvalid,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    MemberIdRequired,
    NodeStopping,
    OffsetMetadataTooLarge,
    SessionTimeoutInvalid,
    StorageFailed,
    UnknownMember,
)
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.group.coordinator import CommitMember, LeavingMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    encode_key,
    encode_offset,
    partition_for,
)
from duramen.groups.values import GroupState, JoinRequest, JoinResult, SyncRequest, SyncResult
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.log.log import Log
from duramen.transactions.values import ProducerIdentity

SIMPLE = CommitMember("", None, -1)
MINUTE_MS = 60_000


@pytest.fixture
def groups(hand: ManualBroker) -> ManualBroker:
    """A broker whose stream of offsets is there."""
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    assert ready.value is None
    return hand


def join(
    hand: ManualBroker, group: str, member_id: str = "", *, instance: str | None = None, id_required: bool = False,
    session_ms: int = 10_000, name: str = "m",
) -> CallbackResult[JoinResult]:  # fmt: skip
    """Ask to join."""
    answer: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest(
        member_id, instance, hand.broker.groups.new_member_id(name), id_required, "client", "/host", session_ms,
        60_000, "consumer", [("range", b"a")],
    )  # fmt: skip
    hand.broker.groups.join(group, request, answer)
    hand.settle()
    return answer


def member(hand: ManualBroker, group: str, instance: str | None = None) -> CommitMember:
    """A new member of a group that has none, with its assignment."""
    joined = join(hand, group, instance=instance).value
    synced: CallbackResult[SyncResult] = CallbackResult()
    request = SyncRequest(joined.member_id, instance, joined.generation, None, None, [(joined.member_id, b"all")])
    hand.broker.groups.sync(group, request, synced)
    hand.settle()
    assert synced.value.assignment == b"all"
    return CommitMember(joined.member_id, instance, joined.generation)


def commit(
    hand: ManualBroker, group: str, who: CommitMember, *offsets: int, topic: str = "a", metadata: str = ""
) -> CallbackResult[list[DuramenError | None]]:
    """Commit an offset for each partition from 0 on."""
    answer: CallbackResult[list[DuramenError | None]] = CallbackResult()
    now_ms = hand.clock.wall_ms()
    wanted = [
        (OffsetKey(group, topic, partition), CommittedOffset(offset, 1, metadata, now_ms))
        for partition, offset in enumerate(offsets)
    ]
    hand.broker.groups.commit(group, who, wanted, answer)
    return answer


def committed(hand: ManualBroker, group: str) -> dict[tuple[str, int], int]:
    """Every offset of a group."""
    return {(key.topic, key.partition): found.offset for key, found in hand.broker.groups.all_committed(group)}


def heartbeat(hand: ManualBroker, group: str, who: CommitMember) -> BaseException | None:
    """A sign of life, and what was answered."""
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.groups.heartbeat(group, who, answer)
    return answer.error


def delete(hand: ManualBroker, group: str) -> BaseException | None:
    """Delete a group, and what was answered."""
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.groups.delete(group, answer)
    hand.settle()
    return answer.error


def listed(hand: ManualBroker) -> dict[str, str]:
    """Every group and its state."""
    return {group.group_id: group.state for group in hand.broker.groups.listing()}


# -- committing ---------------------------------------------------------------------------------------


def test_commits_are_there_when_they_are_durable(groups: ManualBroker) -> None:
    answer = commit(groups, "g", SIMPLE, 5, 7)
    assert not answer.there
    assert committed(groups, "g") == {}
    groups.settle()
    assert answer.value == [None, None]
    assert committed(groups, "g") == {("a", 0): 5, ("a", 1): 7}
    assert groups.broker.groups.committed(OffsetKey("g", "a", 2)) is None


def test_the_last_commit_counts_whatever_else_is_under_way(groups: ManualBroker) -> None:
    answers = [commit(groups, "g", SIMPLE, offset) for offset in range(50)]
    groups.settle()
    assert all(answer.value == [None] for answer in answers)
    assert committed(groups, "g") == {("a", 0): 49}


def test_groups_whose_names_begin_alike_are_told_apart(groups: ManualBroker) -> None:
    names = ["g", "gg", "", "g\0", "ä", "g" * 300]
    for offset, name in enumerate(names):
        commit(groups, name, SIMPLE, offset)
    groups.settle()
    assert [committed(groups, name) for name in names] == [{("a", 0): offset} for offset in range(len(names))]


def test_metadata_that_is_too_long_is_refused_alone(groups: ManualBroker) -> None:
    answer: CallbackResult[list[DuramenError | None]] = CallbackResult()
    wanted = [
        (OffsetKey("g", "a", 0), CommittedOffset(1, 1, "ä" * 2049, 0)),
        (OffsetKey("g", "a", 1), CommittedOffset(2, 1, "ä" * 2048, 0)),
    ]
    groups.broker.groups.commit("g", SIMPLE, wanted, answer)
    groups.settle()
    first, second = answer.value
    assert isinstance(first, OffsetMetadataTooLarge)
    assert second is None
    assert committed(groups, "g") == {("a", 1): 2}


def test_nothing_to_commit(groups: ManualBroker) -> None:
    assert commit(groups, "g", SIMPLE).value == []


def test_members_commit_and_others_do_not(groups: ManualBroker) -> None:
    who = member(groups, "g")
    answer = commit(groups, "g", who, 3)
    groups.settle()
    assert answer.value == [None]
    assert isinstance(commit(groups, "g", SIMPLE, 4).error, UnknownMember)
    assert isinstance(commit(groups, "g", who._replace(generation=9), 4).error, IllegalGeneration)
    assert isinstance(commit(groups, "no such group", who, 4).error, IllegalGeneration)
    assert committed(groups, "g") == {("a", 0): 3}


def test_a_commit_that_cannot_be_stored_is_told(groups: ManualBroker) -> None:
    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    groups.files.interfere = fail
    answer = commit(groups, "g", SIMPLE, 5)
    groups.settle()
    assert isinstance(answer.value[0] if not answer.error else answer.error, StorageFailed)
    assert committed(groups, "g") == {}


def test_commits_of_a_group_share_a_sync(groups: ManualBroker) -> None:
    synced: list[str] = []

    def count(call: str, path: str, size: int) -> int:
        synced.extend([path] if call == "sync" and path.startswith("wal/") else [])
        return size

    groups.files.interfere = count
    answers = [commit(groups, "g", SIMPLE, offset) for offset in range(20)]
    groups.settle()
    assert [answer.value for answer in answers] == [[None]] * 20
    assert len(synced) == 1
    assert committed(groups, "g") == {("a", 0): 19}


def test_a_commit_is_answered_without_waiting_for_the_rows_to_be_written(groups: ManualBroker) -> None:
    answer = commit(groups, "g", SIMPLE, 5)
    while not answer.there:
        groups.worker.run_soon()
        groups.worker.step("sync")
    assert answer.value == [None]
    assert groups.worker.jobs["rows"], "they are written later"
    assert committed(groups, "g") == {("a", 0): 5}


@pytest.mark.parametrize("how", ["restart", "crash"])
@pytest.mark.parametrize("seed", range(5))
def test_commits_and_groups_survive(groups: ManualBroker, how: str, seed: int) -> None:
    who = member(groups, "with a member")
    expected: dict[str, dict[tuple[str, int], int]] = {}
    for number in range(30):
        name = f"g{number % 7}"
        commit(groups, name, SIMPLE, number, number + 1)
        expected[name] = {("a", 0): number, ("a", 1): number + 1}
        if number % 4 == 0:
            groups.settle()
        if number == 20:
            groups.broker.coordinators.states.flush(lambda: None)
    groups.settle()
    if how == "restart":
        groups.restart()
    else:
        groups.crash(seed)
    assert {name: committed(groups, name) for name in expected} == expected
    assert groups.reports == []
    assert heartbeat(groups, "with a member", who) is None
    groups.advance(10_000)
    assert isinstance(heartbeat(groups, "with a member", who), UnknownMember)


def offsets_log(hand: ManualBroker, group: str) -> tuple[int, Log]:
    """The partition that keeps a group, and its log."""
    partitions = hand.broker.streams.get(OFFSETS_STREAM).partitions
    index = partition_for(group, len(partitions))
    return index, partitions[index].log


def test_damage_to_the_stream_of_offsets_loses_what_it_hits_and_nothing_else(groups: ManualBroker) -> None:
    groups.create("b")
    commit(groups, "whole", SIMPLE, 4)
    for offset in (1, 2, 3):
        commit(groups, "g", SIMPLE, offset)
        groups.settle()
    commit(groups, "g", SIMPLE, *[7] * 3, topic="b")
    groups.stop()
    index, log = offsets_log(groups, "g")
    groups.files.corrupt(log.active.path + ".log", log.active.size * 3 // 5)  # the commit of 3
    groups.rows.clear()
    groups.start()
    assert committed(groups, "whole") == {("a", 0): 4}
    assert committed(groups, "g") == {("a", 0): 2, ("b", 0): 7, ("b", 1): 7, ("b", 2): 7}
    found, said = groups.reports
    assert found.startswith(f"{log.active.path}.log: bytes ")
    assert said.startswith(f"record 2 in partition {index} of __consumer_offsets cannot be read")
    assert groups.metrics.counter("duramen_damaged_ranges_total").value == 1
    answer = commit(groups, "g", SIMPLE, 9)
    groups.settle()
    assert answer.value == [None]
    groups.restart()
    assert committed(groups, "g")["a", 0] == 9
    assert len(groups.reports) == 2, "what is known to be lost is not looked at again"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x01\xff", b"v"),
        (encode_key(OffsetKey("g", "a", 0)), b"v"),
        (encode_key(GroupKey("g")), b"v"),
        (b"", None),
    ],
)
def test_a_record_that_says_nothing_is_passed_over(groups: ManualBroker, key: bytes, value: bytes | None) -> None:
    commit(groups, "g", SIMPLE, 5)
    groups.settle()
    index, _ = offsets_log(groups, "g")
    partition = groups.broker.streams.get(OFFSETS_STREAM).partition(index)
    good = BatchInput(1, encode_key(OffsetKey("g", "b", 0)), encode_offset(CommittedOffset(8, 1, "", 1)))
    stored: CallbackResult[int] = CallbackResult()
    partition.append(encode([BatchInput(1, key, value), good]), stored)
    groups.settle()
    assert stored.value == 1
    groups.create("b")
    groups.restart()
    assert committed(groups, "g") == {("a", 0): 5, ("b", 0): 8}
    assert listed(groups) == {"g": GroupState.EMPTY}
    (said,) = groups.reports
    assert said.startswith(f"record 1 in partition {index} of __consumer_offsets cannot be read")


def test_a_view_that_does_not_fit_its_log_is_derived_anew(groups: ManualBroker) -> None:
    commit(groups, "g", SIMPLE, 5)
    groups.settle()
    groups.stop()
    # Another directory under the same view: its logs have other histories.
    other = ManualBroker()
    ready: CallbackResult[None] = CallbackResult()
    other.broker.internal_streams.ensure_offsets(ready)
    other.settle()
    other.stop()
    other.rows = groups.rows
    other.start()
    assert any("does not fit" in report for report in other.reports)
    assert committed(other, "g") == {}


# -- membership ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_ms", [0, 5999, 1_800_001, -1])
def test_session_timeouts_have_bounds(groups: ManualBroker, session_ms: int) -> None:
    assert isinstance(join(groups, "g", session_ms=session_ms).error, SessionTimeoutInvalid)
    assert listed(groups) == {}


@pytest.mark.parametrize("session_ms", [6000, 1_800_000])
def test_session_timeouts_at_their_bounds(groups: ManualBroker, session_ms: int) -> None:
    assert join(groups, "g", session_ms=session_ms).value.generation == 1


def test_a_group_needs_an_id(groups: ManualBroker) -> None:
    assert isinstance(join(groups, "").error, GroupIdInvalid)
    assert isinstance(heartbeat(groups, "", CommitMember("m", None, 1)), GroupIdInvalid)


def test_a_member_of_a_group_that_is_not_there(groups: ManualBroker) -> None:
    assert isinstance(join(groups, "g", "m-1").error, UnknownMember)
    assert isinstance(heartbeat(groups, "g", CommitMember("m", None, 1)), UnknownMember)
    synced: CallbackResult[SyncResult] = CallbackResult()
    groups.broker.groups.sync("g", SyncRequest("m", None, 1, None, None, ()), synced)
    assert isinstance(synced.error, UnknownMember)
    left: CallbackResult[list[DuramenError | None]] = CallbackResult()
    groups.broker.groups.leave("g", [LeavingMember("m", None)], left)
    assert isinstance(left.error, UnknownMember)
    assert listed(groups) == {}


def test_member_ids_begin_with_the_name_of_the_client(groups: ManualBroker) -> None:
    first = join(groups, "g", id_required=True, name="my client")
    assert isinstance(first.error, MemberIdRequired)
    assert first.error.member_id.startswith("my client-")
    assert len(first.error.member_id) == len("my client-") + 36


def test_members_leave_in_a_batch_each_with_its_result(groups: ManualBroker) -> None:
    who = member(groups, "g", instance="one")
    left: CallbackResult[list[DuramenError | None]] = CallbackResult()
    leaving = [LeavingMember("nobody", None), LeavingMember("", "one"), LeavingMember(who.member_id, None)]
    groups.broker.groups.leave("g", leaving, left)
    assert [type(result) for result in left.value] == [UnknownMember, type(None), UnknownMember]
    groups.settle()
    assert groups.broker.groups.describe("g").state is GroupState.EMPTY


def test_a_session_lapses_by_the_clock(groups: ManualBroker) -> None:
    who = member(groups, "g")
    for _ in range(5):
        groups.advance(9999)
        assert heartbeat(groups, "g", who) is None
    groups.advance(10_000)
    assert groups.broker.groups.describe("g").state is GroupState.EMPTY


def test_a_session_begins_once_a_start_that_takes_long_is_over(groups: ManualBroker) -> None:
    who = member(groups, "g")
    ready: CallbackResult[None] = CallbackResult()
    groups.broker.internal_streams.ensure_transactions(ready)
    groups.settle()
    known: CallbackResult[ProducerIdentity] = CallbackResult()
    groups.broker.transactions.initialise("t", MINUTE_MS, None, known)
    groups.settle()
    assert known.error is None
    partitions = groups.broker.streams.get(TRANSACTIONS_STREAM).partitions
    (read_last,) = (partition.log.directory for partition in partitions if partition.log.end_offset)

    def interfere(call: str, path: str, size: int) -> int:
        if call == "read" and path.startswith(f"{read_last}/"):
            groups.clock.advance(9000)
        return size

    groups.stop()
    groups.files.cold, groups.files.interfere = True, interfere
    began_ms = groups.clock.monotonic_ms()
    groups.start()
    groups.files.interfere = None
    assert groups.clock.monotonic_ms() >= began_ms + 9000
    groups.advance(9999)
    assert heartbeat(groups, "g", who) is None


def test_a_name_that_nobody_joined_leaves_nothing_behind(groups: ManualBroker) -> None:
    for number in range(100):
        assert isinstance(join(groups, f"g{number}", id_required=True).error, MemberIdRequired)
    assert len(listed(groups)) == 100
    groups.advance(10_000)
    assert listed(groups) == {}
    assert not groups.broker.groups.classic._groups


def test_a_stopping_node_takes_no_members(groups: ManualBroker) -> None:
    who = member(groups, "g")
    groups.broker.groups.stop()
    assert isinstance(join(groups, "g").error, NodeStopping)
    assert isinstance(heartbeat(groups, "g", who), NodeStopping)
    assert isinstance(commit(groups, "g", who, 1).error, NodeStopping)


# -- administration -----------------------------------------------------------------------------------


def test_groups_are_listed_and_described(groups: ManualBroker) -> None:
    who = member(groups, "with a member")
    commit(groups, "with offsets", SIMPLE, 1)
    groups.settle()
    assert listed(groups) == {"with a member": GroupState.STABLE, "with offsets": GroupState.EMPTY}
    described = groups.broker.groups.describe("with a member")
    assert (described.state, described.snapshot.protocol_type, described.snapshot.protocol) == (
        GroupState.STABLE,
        "consumer",
        "range",
    )
    (found,) = described.snapshot.members
    assert (found.member_id, found.client_id, found.client_host) == (who.member_id, "client", "/host")
    assert (found.subscription, found.assignment) == (b"a", b"all")
    assert groups.broker.groups.describe("with offsets").state is GroupState.EMPTY
    with pytest.raises(GroupNotFound):
        groups.broker.groups.describe("nobody")


def test_groups_are_counted_by_state(groups: ManualBroker) -> None:
    member(groups, "one")
    member(groups, "two")
    commit(groups, "three", SIMPLE, 1)
    groups.settle()
    groups.broker.groups.measure()
    gauge = groups.metrics.counter
    assert gauge("duramen_groups", "Stable", "classic").value == 2
    assert gauge("duramen_groups", "Empty", "classic").value == 1


def test_only_groups_without_members_are_deleted(groups: ManualBroker) -> None:
    member(groups, "g")
    commit(groups, "h", SIMPLE, 1, 2)
    groups.settle()
    assert isinstance(delete(groups, "g"), GroupNotEmpty)
    assert delete(groups, "h") is None
    assert committed(groups, "h") == {}
    assert isinstance(delete(groups, "h"), GroupNotFound)
    assert isinstance(delete(groups, "nobody"), GroupNotFound)
    groups.advance(10_000)
    assert delete(groups, "g") is None
    assert listed(groups) == {}
    groups.crash()
    assert listed(groups) == {}


def test_a_deleted_group_begins_anew(groups: ManualBroker) -> None:
    who = member(groups, "g")
    groups.advance(10_000)
    assert delete(groups, "g") is None
    assert isinstance(join(groups, "g", who.member_id).error, UnknownMember)
    assert join(groups, "g").value.generation == 1


def test_a_deleted_topic_takes_its_offsets_along(groups: ManualBroker) -> None:
    groups.create("b")
    for group in ("g", "h"):
        commit(groups, group, SIMPLE, 1)
        commit(groups, group, SIMPLE, 2, topic="b")
    groups.settle()
    groups.delete("a")
    assert committed(groups, "g") == committed(groups, "h") == {("b", 0): 2}
    groups.crash()
    assert committed(groups, "g") == {("b", 0): 2}


def test_a_crash_between_a_topic_s_deletion_and_that_of_its_offsets(groups: ManualBroker) -> None:
    """A topic made anew under the name must not find the offsets of the one before."""
    commit(groups, "g", SIMPLE, 1000)
    groups.settle()
    deleted: CallbackResult[None] = CallbackResult()
    groups.broker.delete_stream("a", deleted)
    groups.worker.run_soon()
    groups.worker.start("sync")()
    assert deleted.value is None
    groups.crash()
    groups.create("a")
    assert committed(groups, "g") == {}


# -- retention of offsets -----------------------------------------------------------------------------


def retaining() -> ManualBroker:
    """A broker that forgets offsets after two minutes, and looks every half."""
    hand = ManualBroker({"offsets.retention.minutes": 2, "offsets.retention.check.interval.ms": MINUTE_MS // 2})
    hand.create("a", partitions=3)
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    return hand


def test_offsets_that_nobody_renews_are_forgotten() -> None:
    hand = retaining()
    commit(hand, "old", SIMPLE, 1)
    hand.advance(MINUTE_MS)
    commit(hand, "young", SIMPLE, 1)
    hand.advance(MINUTE_MS + MINUTE_MS // 2)
    assert committed(hand, "old") == {}
    assert committed(hand, "young") == {("a", 0): 1}
    hand.advance(MINUTE_MS)
    assert listed(hand) == {}
    hand.crash()
    assert listed(hand) == {}


def test_offsets_of_a_group_with_members_are_kept() -> None:
    hand = retaining()
    who = member(hand, "g")
    commit(hand, "g", who, 1)
    for _ in range(60):
        hand.advance(5000)
        assert heartbeat(hand, "g", who) is None
    assert committed(hand, "g") == {("a", 0): 1}


def test_the_time_counts_from_when_the_group_became_empty() -> None:
    hand = retaining()
    who = member(hand, "g")
    commit(hand, "g", who, 1)
    for _ in range(30):
        hand.advance(5000)
        heartbeat(hand, "g", who)
    hand.advance(MINUTE_MS)  # the session lapses in the first seconds of it
    assert committed(hand, "g") == {("a", 0): 1}
    hand.advance(2 * MINUTE_MS)
    assert committed(hand, "g") == {}
    assert listed(hand) == {}
    assert not hand.broker.groups.classic._groups


def test_the_time_goes_on_while_the_node_is_down() -> None:
    hand = retaining()
    commit(hand, "g", SIMPLE, 1)
    hand.settle()
    hand.stop()
    hand.clock.advance(5 * MINUTE_MS)
    hand.start()
    hand.advance(MINUTE_MS)
    assert committed(hand, "g") == {}


# -- the stream of offsets ------------------------------------------------------------------------------


def test_the_stream_of_offsets_is_made_when_it_is_needed_and_once(hand: ManualBroker) -> None:
    assert hand.broker.streams.find(OFFSETS_STREAM) is None
    answers: list[CallbackResult[None]] = [CallbackResult() for _ in range(3)]
    for answer in answers:
        hand.broker.internal_streams.ensure_offsets(answer)
    assert not any(answer.there for answer in answers)
    hand.settle()
    assert [answer.value for answer in answers] == [None, None, None]
    stream = hand.broker.streams.get(OFFSETS_STREAM)
    assert (stream.internal, len(stream.partitions), stream.compacted) == (True, 50, True)
