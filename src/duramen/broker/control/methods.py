"""Requests to the active controller as rpc methods.

Each response is a value and the position at which it is committed.
"""

from typing import Any, Final

from duramen.broker.control import requests
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer
from duramen.rpc.methods import Method

__all__ = ["METHODS", "method_of"]

METHODS: Final[tuple[Method[Any, Answer], ...]] = (
    Method("register-node", requests.Register, Answer, idempotent=True),
    Method("heartbeat", requests.Beat, Answer, idempotent=True),
    Method("alter-partitions", requests.AlterPartitions, Answer, idempotent=True),
    Method("report-leaders", requests.ReportLeaders, Answer, idempotent=True),
    Method("report-damage", requests.ReportDamage, Answer, idempotent=True),
    Method("allocate-producer-ids", requests.AllocateProducerIds, Answer, idempotent=True),
    Method("adopt-streams", requests.Adopt, Answer, idempotent=True),
    Method("create-stream", requests.CreateStream, Answer, idempotent=False),
    Method("grow-stream", requests.GrowStream, Answer, idempotent=False),
    Method("configure-stream", requests.ConfigureStream, Answer, idempotent=True),
    Method("delete-stream", requests.DeleteStream, Answer, idempotent=False),
    Method("configure-node", requests.ConfigureNode, Answer, idempotent=True),
    Method("configure-group", requests.ConfigureGroup, Answer, idempotent=True),
    Method("alter-quotas", requests.AlterQuotas, Answer, idempotent=True),
    Method("reserve-tenant", requests.ReserveTenant, Answer, idempotent=True),
    Method("release-tenant", requests.ReleaseTenant, Answer, idempotent=True),
    Method("record-gap", requests.RecordGap, Answer, idempotent=False),
    Method("elect-leader", requests.ElectLeader, Answer, idempotent=False),
    Method("move-leader", requests.MoveLeader, Answer, idempotent=True),
    Method("rebalance-leaders", requests.RebalanceLeaders, Answer, idempotent=True),
    Method("reassign-partition", requests.Reassign, Answer, idempotent=True),
    Method("cancel-reassignment", requests.CancelReassignment, Answer, idempotent=False),
    Method("plan-moves", requests.PlanMoves, Answer, idempotent=True),
    Method("begin-moves", requests.BeginMoves, Answer, idempotent=True),
    Method("cancel-moves", requests.CancelMoves, Answer, idempotent=True),
    Method("drain-node", requests.DrainNode, Answer, idempotent=True),
    Method("unregister-node", requests.UnregisterNode, Answer, idempotent=False),
    Method("set-feature-level", requests.SetFeatureLevel, Answer, idempotent=True),
    Method("add-voter", requests.AddVoter, Answer, idempotent=False),
    Method("remove-voter", requests.RemoveVoter, Answer, idempotent=False),
    Method("observe-quorum", requests.Observe, Answer, idempotent=True),
    Method("await-applied", requests.AwaitApplied, Answer, idempotent=True),
)

_BY_TYPE: Final = {method.request: method for method in METHODS}


def method_of(request: Request) -> Method[Any, Answer]:
    """The method of a request."""
    return _BY_TYPE[type(request)]
