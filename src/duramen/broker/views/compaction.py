"""Compaction of a keyed log asks its view: which records may be dropped, and which were."""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from duramen.base.ports import Clock
from duramen.keyed.compaction import Dropping, tombstone_bound
from duramen.keyed.view import KeyedView
from duramen.storage.log.log import Log
from duramen.storage.planning.compaction import Superseded

__all__ = ["ViewDecisions"]

T = TypeVar("T")


class _AskView(Protocol):
    """Runs a job on the view; `done` gets None where the view is not there or has failed."""

    def __call__(self, job: Callable[[KeyedView], T], done: Callable[[T | None], None], /) -> None: ...


class ViewDecisions:
    """`LogView` of a view at work."""

    def __init__(
        self, ask: _AskView, log: Log, clock: Clock, delete_retention_ms: Callable[[], int],
        oldest_reader: Callable[[], int | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._ask = ask
        self._log = log
        self._clock = clock
        self._delete_retention_ms = delete_retention_ms
        self._oldest_reader = oldest_reader

    def decide(
        self, first: int, end: int, cleaned_as_of: int | None, done: Callable[[Superseded | None], None]
    ) -> None:
        """The offsets in `[first, end)` that may be dropped, as `LogView` describes."""
        self._ask(partial(self._decided, first, end, cleaned_as_of, self._oldest_reader()), done)

    def _decided(
        self, first: int, end: int, cleaned_as_of: int | None, oldest_reader: int | None, view: KeyedView
    ) -> Dropping | None:
        if view.s0 < self._log.whole_from:
            return None  # it is being built
        tombstones = None
        if cleaned_as_of is not None:
            retention_ms = self._delete_retention_ms()
            tombstones = tombstone_bound(
                view.samples, self._clock.wall_ms(), retention_ms, view.s0, [cleaned_as_of], oldest_reader
            )
        return view.dropping(first, tombstones, end)

    def dropped(self, decided: Superseded, kept: bytearray) -> None:
        """Forget the keys whose tombstones went."""
        if isinstance(decided, Dropping):
            self._ask(partial(_forget, decided, kept), lambda _: None)


def _forget(decided: Dropping, kept: bytearray, view: KeyedView) -> None:
    gone = decided.gone(kept)
    if any(gone):
        view.forget(gone, decided.base)
