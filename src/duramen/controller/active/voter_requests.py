"""Requests to change the voters: refused immediately, or answered once committed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from duramen.base.errors import (
    DuramenError,
    NotController,
    OutcomeUnknown,
    RequestInvalid,
    VoterDuplicate,
    VoterNotFound,
    VotersUnsettled,
)
from duramen.broker.control import requests
from duramen.broker.control.responses import Answer, Done, When
from duramen.controller.quorum.runner import Runner
from duramen.raft.voter_changes import VoterAddition, VoterChangeRefusal, VoterRemoval

__all__ = ["VoterChanges", "refusal_error"]

_ERRORS: Final[Mapping[VoterChangeRefusal, type[DuramenError]]] = MappingProxyType(
    {
        VoterChangeRefusal.NOT_LEADER: NotController,
        VoterChangeRefusal.NOT_READY: VotersUnsettled,
        VoterChangeRefusal.UNDERWAY: VotersUnsettled,
        VoterChangeRefusal.NOT_CAUGHT_UP: VotersUnsettled,
        VoterChangeRefusal.DUPLICATE: VoterDuplicate,
        VoterChangeRefusal.UNKNOWN: VoterNotFound,
        VoterChangeRefusal.LAST: RequestInvalid,
    }
)


class VoterChanges:
    """The uncommitted changes (KIP-853), by the ends of their entries. For a controller in one epoch."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._waiting: list[tuple[int, When]] = []

    def ask(self, request: requests.AddVoter | requests.RemoveVoter, done: When) -> None:
        """Change the voters; `done` as for any request."""
        if isinstance(request, requests.AddVoter):
            end = self._runner.change(VoterAddition(request.voter))
        else:
            end = self._runner.change(VoterRemoval(request.replica))
        if isinstance(end, VoterChangeRefusal):
            done(refusal_error(end))
        else:
            self._waiting.append((end.offset, done))
            self.look()

    def look(self) -> None:
        """More of the log is applied: all of it was ordered in this epoch or before."""
        applied_offset = self._runner.applied.offset
        reached = [done for offset, done in self._waiting if offset <= applied_offset]
        self._waiting = [entry for entry in self._waiting if entry[0] > applied_offset]
        for done in reached:
            done(Answer(Done(), applied_offset))

    def end(self) -> None:
        """The controller is no longer active; a controller that removed its own node learns of the commit."""
        self.look()
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(
                OutcomeUnknown(
                    "this node lost the leadership of the quorum before the change of the voters was committed"
                )
            )


def refusal_error(refusal: VoterChangeRefusal) -> DuramenError:
    """The refusal as an error."""
    return _ERRORS[refusal](refusal.value)
