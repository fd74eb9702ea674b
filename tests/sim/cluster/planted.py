"""The bugs of issue 7, and some more, to be planted in whole clusters one at a time: a run of some seed finds each."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.broker.control.planted import BUGS as OF_CONTROL
from tests.broker.quorum.planted import BUGS as OF_QUORUM_ON_DISK
from tests.broker.replicas.planted import BUGS as OF_REPLICAS
from tests.controller.quorum.planted import BUGS as OF_QUORUM
from tests.replication.planted import BUGS as OF_REPLICATION
from tests.sim.planted import Bug, Place

from duramen.broker.cluster.member import Member
from duramen.broker.partition import Partition
from duramen.controller.cluster import settling

__all__ = ["BUGS"]

Original = Callable[..., Any]


def _of(bugs: Iterable[Bug], name: str) -> Bug:
    return next(bug for bug in bugs if bug.name == name)


def _elect_anybody(right: Original) -> Original:
    def _elected(before: Any, wanted: Any, known: Any, nodes: Any, rules: Any) -> Any:
        return right(before, wanted, known, nodes, rules._replace(unclean=True))

    return _elected


def _send_anywhere(right: Original) -> Original:
    def preferred_replica(self: Member, partition: Partition, rack_id: str, offset: int) -> int:
        del offset
        return int(right(self, partition, rack_id, 0))

    return preferred_replica


BUGS: Final = (
    _of(OF_REPLICATION, "cut-to-high-watermark"),
    _of(OF_REPLICAS, "acknowledge-own"),
    _of(OF_REPLICAS, "report-written"),
    _of(OF_REPLICATION, "stale-in-sync"),
    _of(OF_QUORUM, "vote-twice"),
    _of(OF_QUORUM, "vote-blank"),
    _of(OF_REPLICATION, "any-epoch"),
    _of(OF_QUORUM, "commit-earlier"),
    Bug("elect-anybody", "elect outside the in-sync set", (Place(settling, "_elected", _elect_anybody),)),
    Bug(
        "send-anywhere",
        "redirect to a replica that lacks the offset",
        (Place(Member, "preferred_replica", _send_anywhere),),
    ),
    _of(OF_REPLICAS, "show-all"),
    _of(OF_QUORUM_ON_DISK, "count-written"),
    _of(OF_CONTROL, "on-committed"),
)
