"""What becomes of a replica that is found damaged: repaired from others, cut, or left as it is, and who hears of it."""

from collections.abc import Callable

from tests.broker.replicas.node import PLACE
from tests.broker.replicas.test_roles import Around

from duramen.base.ids import Position
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.repair import RepairPiece, read_range
from duramen.broker.replicas.roles import Replicas
from duramen.codec.batch import batches
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.replication.messages import ReplicaFetch
from duramen.replication.partition import PartitionConfig
from duramen.storage.log.log import Log
from duramen.storage.scan import scan_log

BATCHES = 6
RETRY_MS = 10_000


class Node(Around):
    """Node 1 of three, that leads in epoch 1; the others have what `others` says."""

    def __init__(self) -> None:
        self.others: dict[int, Node] = {}
        self.reported: list[PartitionId] = []
        self.known: list[Callable[[], None]] = []
        self.state = PartitionState()
        self.said: list[str] = []
        super().__init__(1)

    def start(self) -> None:
        doubles = self.doubles
        self.broker_epoch = doubles.store.node_epoch
        dependencies = ReplicaDependencies(
            1, self.broker_epoch, doubles.store, doubles.clock, doubles.deadlines, self, peers=self
        )
        self.replicas = Replicas(dependencies, self.partition, lambda _: PartitionConfig(self.least))
        self.replicas.on_live_nodes({1, 2, 3})

    @property
    def log(self) -> Log:
        return self.partition(PLACE).log

    def told(self, leader: int | None, epoch: int, in_sync: tuple[int, ...], change: int) -> None:
        self.state = PartitionState((1, 2, 3), in_sync, leader, epoch, change)
        self.publish_again(PLACE)
        self.doubles.settle()

    def filled(self) -> "Node":
        """The same records as every other node that is filled, in files."""
        self.told(1, 1, (1,), 1)
        for _ in range(BATCHES):
            self.append()
        self.doubles.settle()
        self.doubles.advance(1_000)
        return self

    def damage(self, *offsets: int) -> None:
        """Flip a bit of each of these batches, and read the log."""
        path = f"{self.log.active.path}.log"
        places = {head.base_offset: at for at, head in batches(self.doubles.files.content(path))}
        for offset in offsets:
            self.doubles.files.corrupt(path, places[offset] + 50)
        self.scan()

    def scan(self) -> list[tuple[int, int]]:
        """Read all of the log; the ranges that cannot be read."""
        lost: list[tuple[int, int]] = []
        store, log = self.doubles.store, self.log
        scan_log(store, log, 0, lambda *_: None, lambda _: None, lambda first, last, _: lost.append((first, last)))
        self.doubles.settle()
        return lost

    def report(self, finding: str) -> None:
        self.said.append(finding)

    # -- Peers --------------------------------------------------------------------------------------

    def report_damage(self, place: PartitionId, done: Callable[[], None]) -> None:
        self.reported.append(place)
        self.known.append(done)

    def publish_again(self, place: PartitionId) -> None:
        self.replicas.on_partition_state(place, self.state)

    def fetch_range(
        self, node_id: int, place: PartitionId, first: int, last: int, done: Callable[[RepairPiece | None], None]
    ) -> None:
        assert place == PLACE
        other = self.others.get(node_id)
        if other is None:
            done(None)
        else:
            read_range(other.doubles.store, other.log, first, last, done)
            other.doubles.settle()

    def hears(self, leader: int, epoch: int, in_sync: tuple[int, ...]) -> None:
        """The controller has decided what the damage means."""
        self.state = PartitionState((1, 2, 3), in_sync, leader, epoch, epoch + 10)
        self.known.pop()()
        self.doubles.settle()

    def last_fetch(self) -> tuple[int, Position]:
        """Whom it fetches from, and where its log ends."""
        node_id, fetch, _ = self.sent[-1]
        assert isinstance(fetch, ReplicaFetch)
        return node_id, fetch.end


def damaged(*offsets: int) -> Node:
    """A leader that has lost these batches, and says so."""
    node = Node().filled()
    node.damage(*offsets)
    node.replicas.damaged(PLACE)
    return node


def test_a_damaged_leader_serves_nothing_and_is_repaired_once_it_is_not_counted_on() -> None:
    node = damaged(2, 4)
    assert node.replicas.get(PLACE) is None
    assert node.led == [1, None]
    assert node.reported == [PLACE]
    node.others = {2: Node().filled()}
    node.publish_again(PLACE)  # the controller has not answered yet
    assert node.replicas.get(PLACE) is None
    node.hears(2, 2, (2, 3))
    assert node.scan() == []
    assert node.last_fetch() == (2, Position(1, BATCHES))
    assert "offsets 2 to 2, 4 to 4" in node.said[0]
    assert "is repaired from other replicas" in node.said[1]


def test_replicas_that_are_damaged_at_different_places_repair_each_other() -> None:
    node, other = damaged(2), damaged(4)
    node.others, other.others = {2: other}, {2: node}
    node.hears(2, 2, (2,))
    other.hears(1, 2, (1,))  # it has most, and neither leads while it is repaired
    assert node.scan() == other.scan() == []
    assert other.led[-1] == 2


def test_a_log_is_not_cut_while_no_replica_has_what_it_lacks() -> None:
    node, other = damaged(2), damaged(2)
    node.others = {2: other}
    node.hears(2, 2, (2,))
    assert node.replicas.get(PLACE) is None
    assert node.log.end_offset == BATCHES
    assert "cannot be repaired yet" in node.said[-1]
    node.others = {2: other, 3: Node().filled()}
    node.doubles.advance(RETRY_MS)
    assert node.scan() == []
    assert node.last_fetch() == (2, Position(1, BATCHES))


def test_what_the_leader_never_had_is_cut_and_not_waited_for() -> None:
    node, leader = damaged(4), Node()
    leader.told(1, 1, (1,), 1)
    for _ in range(3):
        leader.append()
    leader.doubles.settle()
    node.others = {2: leader}
    node.hears(2, 2, (2, 3))
    assert node.log.end_offset == 4
    assert node.last_fetch() == (2, Position(1, 4))


def test_what_a_follower_lacks_is_waited_for() -> None:
    node, follower = damaged(4), Node()
    follower.told(1, 1, (1,), 1)
    follower.append()
    follower.doubles.settle()
    node.others = {3: follower}  # the leader does not answer
    node.hears(2, 2, (2, 3))
    assert node.log.end_offset == BATCHES
    node.others = {2: Node().filled()}
    node.doubles.advance(RETRY_MS)
    assert node.scan() == []


def test_a_gap_without_bytes_is_cut_where_others_have_the_records() -> None:
    node = Node().filled()
    node.log.damage.append((2, 3))
    node.replicas.damaged(PLACE)
    node.others = {2: Node().filled()}
    node.hears(2, 2, (2, 3))
    assert node.last_fetch() == (2, Position(1, 2))
    assert "the log is truncated there" in node.said[-1]


def test_the_only_one_that_has_the_rest_leads_on_and_is_repaired_later() -> None:
    node = damaged(2)
    node.hears(1, 2, (1,))
    assert node.led == [1, None, 2]
    assert node.scan() == [(2, 2)]
    node.others = {3: Node().filled()}
    node.doubles.advance(RETRY_MS)
    assert node.scan() == []
    assert node.led == [1, None, 2]


def test_it_leads_no_more_once_others_have_all_of_it() -> None:
    node = damaged(2)
    node.hears(1, 2, (1,))
    node.told(1, 2, (1, 2), 20)
    node.doubles.advance(RETRY_MS)
    assert node.led == [1, None, 2, None]
    assert node.reported == [PLACE, PLACE]
    assert node.replicas.get(PLACE) is None


def test_a_replica_that_is_counted_on_and_opens_with_damage_reports_it() -> None:
    node = Node().filled()
    node.doubles.crash()
    node.start()
    node.log.damage.append((2, 3))
    node.told(2, 2, (1, 2), 20)
    assert node.replicas.get(PLACE) is None
    assert node.reported == [PLACE]
    assert "2 to 3" in str(node.failures[0])
