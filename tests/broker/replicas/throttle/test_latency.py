"""How long batches take until all in sync have them is known wherever a replica in sync is."""

from tests.broker.replicas.node import PLACE
from tests.broker.replicas.test_roles import Around

from duramen.base.ids import Position
from duramen.broker.replicas.throttle.throttle import UNLIMITED, CatchUpThrottle
from duramen.codec.batch import BatchInput, encode
from duramen.replication.messages import ReplicaFetch, ReplicaFetchAnswer
from duramen.sim.machine.store import StoreOnDoubles

_MS = 1000


class _Heard(CatchUpThrottle):
    """A pace that notes what it is told."""

    def __init__(self, doubles: StoreOnDoubles) -> None:
        super().__init__(UNLIMITED, doubles.clock, doubles.deadlines)
        self.taken_us: list[int] = []
        self.led: list[bool] = []
        self.wrote_bytes = 0

    def took(self, taken_us: int, *, leads: bool) -> None:
        self.taken_us.append(taken_us)
        self.led.append(leads)

    def wrote(self, size: int) -> None:
        self.wrote_bytes += size


def _around() -> tuple[Around, _Heard]:
    around = Around(pace=_Heard)
    assert isinstance(around.pace, _Heard)
    return around, around.pace


def test_of_a_leader_it_is_the_time_until_all_in_sync_have_it() -> None:
    around, heard = _around()
    around.told(1, 1, (1, 2), 1)
    around.append()
    around.doubles.clock.advance(7)
    around.fetch(2, Position(1, 1), 0)
    assert heard.taken_us == []
    around.doubles.clock.advance(2)
    around.fetch(2, Position(1, 1), 1)
    assert [round(taken_us, -1) for taken_us in heard.taken_us] == [9 * _MS]
    assert heard.led == [True]
    assert heard.wrote_bytes > 0


def _follow(around: Around, in_sync: tuple[int, ...]) -> None:
    """A batch comes from node 2, is on this disk at once, and after 5 ms on all."""
    around.told(2, 1, in_sync, 1)
    data = encode([BatchInput(1, None, b"v")], leader_epoch=1)
    around.replicas.receive(PLACE, ReplicaFetchAnswer(2, 1, _asked(around)), data)
    around.doubles.settle()
    around.doubles.clock.advance(5)
    around.replicas.receive(PLACE, ReplicaFetchAnswer(2, 1, _asked(around), high_watermark=1))
    around.doubles.settle()


def _asked(around: Around) -> ReplicaFetch:
    fetch = around.sent[-1][1]
    assert isinstance(fetch, ReplicaFetch)
    return fetch


def test_of_a_follower_it_is_not_only_its_own_disk() -> None:
    around, heard = _around()
    _follow(around, (1, 2, 3))
    assert [round(taken_us, -1) for taken_us in heard.taken_us] == [5 * _MS]
    assert heard.led == [False]
    assert heard.wrote_bytes == 0


def test_who_is_not_in_sync_says_nothing() -> None:
    around, heard = _around()
    _follow(around, (2, 3))
    assert heard.taken_us == []


def test_what_is_on_its_way_where_another_comes_to_lead_does_not_count() -> None:
    around, heard = _around()
    around.told(1, 1, (1, 2), 1)
    around.append()
    around.told(1, 1, (1, 2, 3), 2)
    around.fetch(2, Position(1, 1), 1)
    around.fetch(3, Position(1, 1), 1)
    assert around.replica.partition.log.high_watermark == 1
    assert heard.taken_us == []
