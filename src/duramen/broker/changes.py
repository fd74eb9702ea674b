"""Metadata changes: made by the node itself if it is standalone, otherwise requested from the active controller."""

from collections.abc import Callable
from typing import Protocol

from duramen.base.errors import DuramenError
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Value
from duramen.metadata.state import ControllerState

__all__ = ["Changes", "Done", "ValueDone", "settled"]

Done = Callable[[DuramenError | None], None]
ValueDone = Callable[[Value | DuramenError], None]


class Changes(Protocol):
    """The committed metadata, and its changes."""

    @property
    def state(self) -> ControllerState:
        """The committed metadata that has taken effect here: read-only, and not to be kept."""

    def check(self, request: Request) -> None:
        """Raise the error that a request would get, as far as this node knows."""

    def ask(self, request: Request, done: ValueDone) -> None:
        """Ask for a change; `done` gets the answer once it has taken effect here, or why it is refused."""


def settled(done: Done) -> ValueDone:
    """A callback for callers that only need success or the error."""
    return lambda outcome: done(outcome if isinstance(outcome, DuramenError) else None)
