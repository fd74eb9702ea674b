"""All bugs that are planted in a node: a few wrong lines each, in the place of a function or a method."""

from typing import Final

from tests.sim.bugs.checkpoints import CHECKPOINT_BUGS
from tests.sim.bugs.queues import QUEUE_BUGS
from tests.sim.bugs.recovery import RECOVERY_BUGS
from tests.sim.bugs.views import VIEW_BUGS
from tests.sim.bugs.wal import WAL_BUGS

__all__ = ["BUGS"]

BUGS: Final = (*WAL_BUGS, *RECOVERY_BUGS, *CHECKPOINT_BUGS, *VIEW_BUGS, *QUEUE_BUGS)
