"""The loss of a replica's state: neither its rows nor its log have all of it, and no other replica has sent them."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, StateDamaged
from duramen.broker.partition import Partition
from duramen.coordinators.runtime.rows import RowStates

__all__ = ["StateLoss"]

_ABSENT = "they are neither in the rows nor in a checkpoint"


class StateLoss:
    """The error of a lost state, which is reported once. `error` is None while the state is not lost."""

    def __init__(self, partition: Partition, states: RowStates, report: Callable[[str], None]) -> None:
        self._partition = partition
        self._states = states
        self._report = report
        self.error: StateDamaged | None = None

    def end(self) -> None:
        """The state has all that its log lacks."""
        if self.error is not None:
            self._report(f"partition {self._partition.index} of {self._partition.stream.name} has its rows again")
            self.error = None

    def found(self, elsewhere: DuramenError, *, alone: bool) -> None:
        """There are no rows of the state: `elsewhere` says why none came from other replicas, if it is not `alone`."""
        if self.error is not None:
            return
        partition, log = self._partition, self._partition.log
        name = f"partition {partition.index} of {partition.stream.name}"
        others = "it has no other replica" if alone else f"no other replica has sent them: {elsewhere}"
        self.error = StateDamaged(
            f"the rows of {name} are lost ({self._states.damage.get(log.id, _ABSENT)}), its log starts at"
            f" {log.start_offset}, and {others}"
        )
        self._report(f"{self.error}; {StateDamaged.remedy}")
