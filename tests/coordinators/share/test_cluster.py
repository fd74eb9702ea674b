"""Share groups on three brokers: whoever leads delivers, whoever leads the state's partition keeps, and both change."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.several import Several
from tests.coordinators.share.keeping import coordinated, lags_in_metrics, states, update_measures

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    GroupNotEmpty,
    NotCoordinator,
    NotLeader,
    OutcomeUnknown,
    ShareGroupUnknown,
    UnknownMember,
)
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.share.fetch import ShareFetched, ShareLimits
from duramen.coordinators.share.partition import ACCEPT, RELEASE, Acknowledged
from duramen.coordinators.share.shares import ShareOffset
from duramen.coordinators.share.state import SHARE_STATE_STREAM
from duramen.delivery.window import Acquired
from duramen.groups.records import partition_for
from duramen.groups.share_group import ShareHeartbeat, ShareHeartbeatResult
from duramen.groups.share_records import ShareKey, state_partition_for
from duramen.metadata.decisions import Definition
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult

LIMITS = ShareLimits(1, 1 << 20, 500, 500, 500)
GROUP = "g"


class Shares:
    """A group that reads a stream of one partition, with its coordinator, its leader and the keeper of its state."""

    def __init__(self) -> None:
        self.several = Several(3)
        self.several.ensure_offsets()
        self.do(1, self.several.broker(1).internal_streams.ensure_shares)
        self.do(1, self.several.broker(1).create_stream, Definition("a", 1))
        self.key = ShareKey(GROUP, self.several.place("a").stream_id, 0)
        self.owners = (
            self.several.place("a"),
            self.several.place(SHARE_STATE_STREAM, state_partition_for(self.key, 2)),
            self.several.place(OFFSETS_STREAM, partition_for(GROUP, 2)),
        )
        for place, node in zip(self.owners, (1, 2, 3), strict=True):
            self.several.elect(place, node)
        self.several.advance(1000)

    def do(self, node: int, action: Any, *args: Any) -> None:
        """Do something that ends in `done(None)`; raises its error."""
        del node
        answer: CallbackResult[None] = CallbackResult()
        action(*args, answer)
        self.several.advance(1000)
        if answer.error is not None:
            raise answer.error
        assert answer.there

    @property
    def leaders(self) -> list[int | None]:
        """Who leads the partition, that of its state, and that of the group."""
        return [self.several.partitions[place].leader for place in self.owners]

    def _broker(self, which: int) -> Broker:
        leader = self.leaders[which]
        assert leader is not None
        return self.several.broker(leader)

    @property
    def leader(self) -> Broker:
        return self._broker(0)

    @property
    def coordinator(self) -> Broker:
        return self._broker(2)

    def beat(self, member: str, epoch: int = 0) -> ShareHeartbeatResult:
        answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
        heartbeat = ShareHeartbeat(member, epoch, None, ["a"] if not epoch else None, "c", "/h")
        self.coordinator.share_groups.heartbeat(GROUP, heartbeat, answer)
        self.several.advance(1000)
        return answer.value

    def append(self, answer: CallbackResult[int], *values: bytes) -> None:
        batch = encode(BatchInput(self.leader.now_ms(), None, value) for value in values)
        self.leader.streams.get("a").partition(0).append(batch, answer)

    def write(self, *values: bytes) -> int:
        """Append records; the first one's offset."""
        answer: CallbackResult[int] = CallbackResult()
        self.append(answer, *values)
        self.several.advance(1000)
        assert answer.value >= 0
        return answer.value

    def restarted(self, node: int) -> None:
        """A node was started again."""

    def begin(self, owner: str, node: Broker | None = None) -> CallbackResult[list[ShareFetched]]:
        answer: CallbackResult[list[ShareFetched]] = CallbackResult()
        (node or self.leader).sharing.fetch([self.key], owner, LIMITS, answer)
        return answer

    def take(self, owner: str, node: Broker | None = None) -> list[Acquired]:
        """What `owner` gets of a node, by default of the leader."""
        answer = self.begin(owner, node)
        self.several.advance(2000)
        found = answer.value[0]
        if found.error is not None:
            raise found.error
        return [] if found.taken is None else found.taken.acquired

    def saying(self, owner: str, *said: tuple[int, int, int], node: Broker | None = None) -> CallbackResult[None]:
        answer: CallbackResult[None] = CallbackResult()
        batches = [Acknowledged(first, last, [type_]) for first, last, type_ in said]
        (node or self.leader).sharing.acknowledge(self.key, owner, batches, answer)
        return answer

    def say(self, owner: str, *said: tuple[int, int, int], node: Broker | None = None) -> None:
        answer = self.saying(owner, *said, node=node)
        self.several.advance(15_000, 500)
        assert answer.value is None

    def located(self, node: int) -> ShareOffset | DuramenError | None:
        answer: CallbackResult[Any] = CallbackResult()
        self.several.broker(node).share_nodes.locate([self.key], answer)
        self.several.advance(1000)
        found: ShareOffset | DuramenError | None = answer.value[self.key]
        return found

    def reset(self, start: int) -> None:
        partition = self.coordinator.streams.get("a").partition(0)
        self.do(0, self.coordinator.share_groups.alter_offsets, GROUP, [(partition.log.key, start)])


@pytest.fixture
def shares() -> Shares:
    """Ten records that nobody has been given, and a member `m`."""
    shares = Shares()
    shares.reset(0)
    shares.beat("m")
    shares.write(*[b"%d" % index for index in range(10)])
    return shares


def offsets(taken: Sequence[Acquired]) -> list[int]:
    return [at for first, last, _ in taken for at in range(first, last + 1)]


def test_the_leader_delivers_and_others_say_so(shares: Shares) -> None:
    assert shares.take("m") == [Acquired(0, 9, 1)]
    for node in (2, 3):
        with pytest.raises(NotLeader):
            shares.take("m", shares.several.broker(node))
    shares.say("m", (0, 4, ACCEPT), (5, 5, RELEASE))
    assert shares.take("n") == [Acquired(5, 5, 2)]


@pytest.mark.parametrize("moved", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("crash", [None, 1])
def test_what_was_acknowledged_is_gone_whoever_leads(shares: Shares, moved: Sequence[int], crash: int | None) -> None:
    shares.take("m")
    shares.say("m", (0, 2, ACCEPT), (3, 3, RELEASE), (7, 7, ACCEPT))
    for which in moved:
        before = shares.leaders[which]
        assert before is not None
        shares.several.restart(before, crash=crash)
    shares.several.advance(2000)
    if 2 in moved:
        with pytest.raises(UnknownMember):
            shares.beat("m", 1)
        assert shares.beat("m").assignment is not None
    if 0 in moved:
        assert shares.take("n") == [Acquired(3, 3, 2), Acquired(4, 6, 1), Acquired(8, 9, 1)]
    else:
        assert shares.take("n") == [Acquired(3, 3, 2)]
        shares.say("m", (4, 6, ACCEPT))


def test_acknowledgements_wait_until_somebody_keeps_the_state_again(shares: Shares) -> None:
    shares.take("m")
    keeper = shares.leaders[1]
    assert keeper is not None
    shares.several.cut.add(keeper)
    said = shares.saying("m", (0, 4, ACCEPT))
    later = shares.saying("m", (5, 6, ACCEPT))
    shares.several.advance(2000)
    assert not said.there
    shares.several.elect(shares.owners[1], 3)
    shares.several.advance(1000)
    shares.several.heal(keeper)
    shares.several.advance(5000, 500)
    assert (said.value, later.value) == (None, None)
    shares.several.restart(1, crash=2)
    shares.several.advance(2000)
    assert offsets(shares.take("n")) == [7, 8, 9]


def test_who_led_before_changes_nothing_any_more(shares: Shares) -> None:
    shares.take("m")
    before = shares.leader
    shares.several.cut.add(1)
    shares.several.elect(shares.owners[0], 2)
    shares.several.advance(20_000, 1000)
    assert shares.take("n") == []  # what is read has to be on all replicas in sync first, of which one is silent
    shares.several.advance(40_000, 1000)
    assert offsets(shares.take("n")) == list(range(10))
    shares.say("n", (0, 9, ACCEPT))
    # It has not heard that another leads, and can ask again before it does.
    shares.several.cut.discard(1)
    assert offsets(shares.take("m", before)) == list(range(10))
    said = shares.saying("m", (0, 9, RELEASE), node=before)
    shares.several.advance(2000)
    with pytest.raises(NotLeader):
        assert said.value is None
    shares.several.heal(1)
    shares.several.elect(shares.owners[0], 3)
    shares.several.advance(1000)
    assert shares.take("z") == []


def test_a_new_leader_reads_what_an_older_one_was_told_is_stored(shares: Shares) -> None:
    shares.take("m")
    said = shares.saying("m", (0, 9, ACCEPT))
    shares.several.elect(shares.owners[0], 2)
    found = shares.begin("n")
    shares.several.advance(3000)
    taken = found.value[0].taken
    delivered = [] if taken is None else offsets(taken.acquired)
    assert said.there
    assert delivered == [] or said.calls[0][0] is not None


def test_who_leads_again_reads_again(shares: Shares) -> None:
    shares.take("m")
    for leader, owner in ((2, "n"), (1, "z")):
        shares.several.elect(shares.owners[0], leader)
        shares.several.advance(1000)
        assert offsets(shares.take(owner)) == ([] if owner == "z" else list(range(10)))
        if owner == "n":
            shares.say("n", (0, 9, ACCEPT))


def test_every_node_tells_where_a_group_is(shares: Shares) -> None:
    shares.take("m")
    shares.say("m", (0, 3, ACCEPT))
    found = [shares.located(node) for node in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
    assert isinstance(found[0], ShareOffset)
    assert (found[0].start_offset, found[0].lag) == (4, 6)
    shares.several.elect(shares.owners[0], 3)
    shares.several.advance(1000)
    again = shares.located(1)
    assert isinstance(again, ShareOffset)
    assert (again.start_offset, again.lag) == (4, 6)


def test_the_coordinator_reports_the_lag_and_keeps_it_for_a_minute(shares: Shares) -> None:
    def measured() -> list[dict[tuple[str, ...], tuple[float, float | None]]]:
        for node in (1, 2, 3):
            update_measures(shares.several.broker(node), lambda: shares.several.advance(6000))
        return [lags_in_metrics(shares.several.broker(node)) for node in (1, 2, 3)]

    shares.take("m")
    shares.say("m", (0, 3, ACCEPT))
    first = measured()
    assert first[:2] == [{}, {}]
    (records, seconds) = first[2][GROUP, "a", "0"]
    assert records == 6
    assert seconds is not None
    assert seconds > 1
    shares.several.cut.add(1)
    assert measured()[2][GROUP, "a", "0"][0] == 6
    shares.several.advance(60_000)
    assert measured()[2] == {}


def test_an_operator_moves_and_deletes_a_group(shares: Shares) -> None:
    shares.take("m")
    shares.say("m", (0, 9, ACCEPT))
    with pytest.raises(GroupNotEmpty):
        shares.reset(5)
    shares.beat("m", -1)
    shares.reset(5)
    assert offsets(shares.take("n")) == [5, 6, 7, 8, 9]
    groups = shares.coordinator.groups
    assert [line.group_id for line in groups.listing()] == [GROUP]
    shares.do(0, groups.delete, GROUP)
    assert [line.group_id for line in groups.listing()] == []
    with pytest.raises(ShareGroupUnknown):
        shares.take("n")
    keeper = shares.several.broker(2)
    keeper.share_nodes.tidy()
    assert coordinated(keeper) == {}  # nothing is left of a group that is gone
    for node in (1, 2):
        assert [line.group_id for line in shares.several.broker(node).groups.listing()] == []
    shares.several.restart(3)
    shares.several.advance(2000)
    assert [line.group_id for line in shares.coordinator.groups.listing()] == []
    assert states(shares.several.broker(1)) == {}


def test_a_deletion_in_the_middle_of_which_the_coordinator_goes_is_done_again(shares: Shares) -> None:
    shares.take("m")
    shares.say("m", (0, 9, ACCEPT))
    shares.beat("m", -1)
    deleted: CallbackResult[None] = CallbackResult()
    shares.coordinator.groups.delete(GROUP, deleted)
    heartbeat = ShareHeartbeat("new", 0, None, ["a"], "c", "/h")
    joined: CallbackResult[ShareHeartbeatResult] = CallbackResult()
    shares.coordinator.share_groups.heartbeat(GROUP, heartbeat, joined)
    with pytest.raises(CoordinatorLoading):
        assert joined.value is None
    shares.several.restart(3, crash=5)
    shares.several.advance(3000)
    assert shares.beat("m").assignment is not None
    shares.beat("m", -1)
    shares.do(0, shares.coordinator.groups.delete, GROUP)
    assert shares.coordinator.groups.listing() == []


def test_a_deleted_stream_takes_its_shares_along_everywhere(shares: Shares) -> None:
    shares.take("m")
    shares.do(0, shares.several.broker(2).delete_stream, "a")
    shares.several.advance(1000)
    for node in (1, 2, 3):
        broker = shares.several.broker(node)
        assert states(broker) == {}
        assert broker.sharing._partitions == {}
    shares.beat("m", -1)
    assert shares.coordinator.groups.listing() == []


def test_who_does_not_coordinate_says_so(shares: Shares) -> None:
    answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
    with pytest.raises(NotCoordinator):
        shares.several.broker(1).groups.check(GROUP)
    shares.do(0, shares.several.broker(1).share_nodes.inventory.prepare, GROUP, [])
    heartbeat = ShareHeartbeat("x", 0, None, ["a"], "c", "/h")
    shares.several.broker(1).share_groups.heartbeat(GROUP, heartbeat, answer)
    shares.several.advance(1000)
    with pytest.raises(NotCoordinator):
        assert answer.value is None


def test_a_message_that_comes_late_undoes_nothing(shares: Shares) -> None:
    several, (_, keeper, _) = shares.several, shares.owners
    shares.take("m")
    several.slow = {(1, 2)}
    said = shares.saying("m", (0, 0, RELEASE))
    several.advance(1000)
    several.elect(keeper, 3)
    several.advance(5000, 500)
    assert said.value is None
    assert offsets(shares.take("n")) == [0]
    shares.say("n", (0, 0, ACCEPT))
    several.elect(keeper, 2)
    several.slow.clear()
    several.advance(1000)
    several.arrive()
    several.advance(1000)
    several.elect(shares.owners[0], 3)
    several.advance(1000)
    assert 0 not in offsets(shares.take("z"))


def test_what_was_given_up_here_only_is_not_acknowledged_before_it_is_stored(shares: Shares) -> None:
    several, keeper = shares.several, 2
    for _ in range(5):  # as often as it is delivered at all
        several.advance(31_000, 1000)
        assert offsets(shares.take("m")) == list(range(10))
    several.cut = {keeper}
    several.advance(45_000, 1000)  # its lock runs out, and nobody stores that
    said = shares.saying("m", (0, 9, ACCEPT))
    several.advance(1000)
    assert not said.there
    several.advance(12_000, 500)
    with pytest.raises(OutcomeUnknown):
        assert said.value is None
    several.heal(keeper)
    several.advance(1000)
    shares.say("m", (0, 9, ACCEPT))
    several.elect(shares.owners[0], 3)
    several.advance(1000)
    assert shares.take("z") == []


def test_who_is_cut_off_for_a_session_hands_out_nothing(shares: Shares) -> None:
    several, before = shares.several, shares.leader
    shares.take("m")
    several.cut = {1}
    replicas = several.placed[1].replicas
    assert replicas is not None
    for node in (2, 3):
        replicas.unreachable(node)
    several.advance(31_000, 1000)  # locks run out
    assert offsets(shares.take("m", before)) == list(range(10))  # it may lead still
    replicas.on_controller_session(alive=False)
    several.advance(31_000, 1000)
    with pytest.raises(NotLeader, match="another node may lead it by now"):
        shares.take("m", before)
    replicas.on_controller_session(alive=True)
    several.heal(1)
    several.advance(1000)
    assert offsets(shares.take("m", before)) == list(range(10))  # it led all the time


def test_who_is_heard_no_more_and_has_lost_nobody_hands_out(shares: Shares) -> None:
    replicas = shares.several.placed[1].replicas
    assert replicas is not None
    replicas.on_controller_session(alive=False)
    shares.several.advance(1000)
    assert offsets(shares.take("m")) == list(range(10))
    shares.say("m", (0, 9, ACCEPT))


@pytest.mark.parametrize("what", ["moved", "partly", "deleted"])
def test_nobody_joins_until_a_change_is_at_its_end(shares: Shares, what: str) -> None:
    shares.take("m")
    shares.beat("m", -1)
    done: CallbackResult[None] = CallbackResult()
    shares.several.slow = {(2, 3)}
    groups, stream = shares.coordinator.share_groups, shares.coordinator.streams.get("a")
    match what:
        case "moved":
            groups.alter_offsets(GROUP, [(stream.partition(0).log.key, 3)], done)
        case "partly":
            groups.delete_offsets(GROUP, stream.id, done)
        case _:
            shares.coordinator.groups.delete(GROUP, done)
    shares.several.advance(500)
    with pytest.raises(CoordinatorLoading, match="is being"):
        shares.beat("n")
    again: CallbackResult[None] = CallbackResult()
    groups.alter_offsets(GROUP, [(stream.partition(0).log.key, 7)], again)
    with pytest.raises(CoordinatorLoading, match="is being"):
        assert again.value is None
    shares.several.slow.clear()
    shares.several.advance(5000, 500)
    assert done.value is None
    assert shares.beat("n").assignment is not None
    assert offsets(shares.take("n")) == ([*range(3, 10)] if what == "moved" else [])


@pytest.mark.parametrize("what", ["moved", "deleted"])
def test_who_coordinated_before_undoes_nothing(shares: Shares, what: str) -> None:
    several, before = shares.several, shares.coordinator
    shares.beat("m", -1)
    done: CallbackResult[None] = CallbackResult()
    several.slow = {(2, 3)}  # what it asks the keeper is done, and no answer comes
    if what == "moved":
        before.share_groups.alter_offsets(GROUP, [(before.streams.get("a").partition(0).log.key, 0)], done)
    else:
        before.groups.delete(GROUP, done)
    several.advance(200)
    assert not done.there
    several.fence(3)
    several.advance(200)
    joined: CallbackResult[ShareHeartbeatResult] = CallbackResult()
    shares.coordinator.share_groups.heartbeat(GROUP, ShareHeartbeat("n", 0, None, ["a"], "c", "/h"), joined)
    several.advance(200)
    assert joined.value.assignment is not None
    given = shares.begin("n")
    several.advance(500)
    if what == "deleted":  # it begins at the end
        answer: CallbackResult[int] = CallbackResult()
        shares.append(answer, b"x")
        several.advance(200)
        given = shares.begin("n")
        several.advance(200)
    taken = given.value[0].taken
    assert taken is not None
    first, last = offsets(taken.acquired)[0], offsets(taken.acquired)[-1]
    said = shares.saying("n", (first, last, ACCEPT))
    several.advance(200)
    assert said.value is None
    several.broker(2).share_nodes.tidy()
    several.slow.clear()
    several.advance(12_000, 500)
    several.elect(shares.owners[0], 2)
    several.advance(1000)
    assert offsets(shares.take("z")) == []
    assert shares.several.broker(2) is shares.leader
