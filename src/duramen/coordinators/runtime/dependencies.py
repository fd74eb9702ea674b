"""What the coordinator runtime of a node uses: its ports, and other parts of the node."""

from collections.abc import Callable
from typing import NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.broker.membership import NodeMembership
from duramen.broker.streams import BrokerStreams
from duramen.coordinators.runtime.rows import RowStates
from duramen.rpc.caller import Caller
from duramen.storage.store import Store

__all__ = ["RuntimeDependencies"]


class RuntimeDependencies(NamedTuple):
    """`states` has the rows of all kinds, `report` tells the operator."""

    membership: NodeMembership
    streams: BrokerStreams
    store: Store
    caller: Caller
    clock: Clock
    deadlines: Deadlines
    report: Callable[[str], None]
    states: RowStates
