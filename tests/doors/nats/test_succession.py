"""From when on messages may be missing, by who led before."""

from collections.abc import Callable
from uuid import UUID

import pytest

from duramen.doors.nats.succession import Succession
from duramen.metadata.partitions import PartitionId

PLACE = PartitionId(UUID(int=7), 0)
ME, OTHER, THIRD = 1, 2, 3


class Cluster:
    """Who leads, and who was heard of when."""

    def __init__(self) -> None:
        self.leader: int | None = None
        self.heard = {OTHER: 50_000}
        self.succession = Succession(ME, lambda _: self.leader, lambda node_id: self.heard.get(node_id, 0))

    def led_by(self, leader: int | None, now_ms: int = 60_000) -> "Cluster":
        self.leader = leader
        self.succession.told(PLACE, now_ms)
        return self

    def begun(self, leader: int | None) -> "Cluster":
        self.leader = leader
        self.succession.begin(PLACE)
        return self


@pytest.mark.parametrize(
    ("story", "since_ms"),
    [
        (lambda: Cluster().led_by(ME), None),  # a new partition
        (lambda: Cluster().led_by(OTHER).led_by(ME), 49_000),
        (lambda: Cluster().begun(ME), 0),  # this node led it when it was started
        (lambda: Cluster().begun(None).led_by(ME), 0),
        (lambda: Cluster().begun(OTHER).led_by(ME), 49_000),
        (lambda: Cluster().begun(OTHER).led_by(None).led_by(ME), 49_000),
        (lambda: Cluster().begun(THIRD).led_by(ME), 0),  # who was never heard of
        (lambda: Cluster().begun(ME).led_by(None, 70_000).led_by(ME, 80_000), 70_000),
        (lambda: Cluster().begun(ME).led_by(OTHER, 70_000).led_by(ME, 80_000), 49_000),
    ],
)
def test_who_led_before_says_what_may_be_missing(story: Callable[[], Cluster], since_ms: int | None) -> None:
    assert story().succession.missing_since_ms(PLACE) == since_ms


def test_leading_in_another_epoch_goes_on_where_it_stopped() -> None:
    cluster = Cluster().begun(ME)
    cluster.succession.left(PLACE, 70_000)
    cluster.led_by(ME, 71_000)
    assert cluster.succession.missing_since_ms(PLACE) == 70_000


def test_a_partition_that_is_gone_is_new_again() -> None:
    cluster = Cluster().begun(ME)
    cluster.succession.forget(PLACE)
    assert cluster.succession.missing_since_ms(PLACE) is None
    assert cluster.led_by(OTHER).succession.missing_since_ms(PLACE) is None
