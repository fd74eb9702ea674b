"""Tenants and namespaces on all nodes: the leader of shard 0 sends each node the new events. Pure."""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, OutcomeUnknown
from duramen.codec.batch import DecodedRecord
from duramen.inventory.directory import Directory
from duramen.inventory.events import InventoryEvent, decode_event, encode_event

__all__ = ["DIRECTORY_UNKNOWN", "DirectoryCopy", "DirectoryHistory", "DirectoryPage", "DirectoryState"]

_KEPT_EVENTS: Final = 10_000
_PAGE_EVENTS: Final = 10_000


class DirectoryState(NamedTuple):
    """The state of a node's copy of the directory.

    `epoch` and `loads` identify the life of the sending shard, `version` counts events since then; `taken`: the number
    of received events of the whole, -1: all.
    """

    epoch: int
    loads: int
    version: int
    taken: int = -1


DIRECTORY_UNKNOWN: Final = DirectoryState(-1, -1, -1)


class DirectoryPage(NamedTuple):
    """The events that lead to `state`: those after the node's state, or, with `whole`, all from the first."""

    state: DirectoryState
    whole: bool
    events: Sequence[bytes]


class DirectoryHistory:
    """The events of the directory since the shard was loaded."""

    def __init__(self) -> None:
        self._loads = 0
        self._version = 0
        self._recent = deque[bytes](maxlen=_KEPT_EVENTS)
        self._image: tuple[int, list[bytes]] | None = None

    def loaded(self) -> None:
        """The directory is loaded from rows."""
        self._loads += 1
        self._version, self._image = 0, None
        self._recent.clear()

    def add(self, event: bytes) -> None:
        """Add an event."""
        self._version += 1
        self._recent.append(event)

    def page(self, epoch: int, directory: Directory, known: DirectoryState) -> DirectoryPage:
        """The events that a node with this state lacks, in the epoch of this leadership."""
        behind = self._version - known.version
        if known[:2] == (epoch, self._loads) and known.taken < 0 and 0 <= behind <= len(self._recent):
            events = list(self._recent)[len(self._recent) - behind :] if behind else []
            return DirectoryPage(DirectoryState(epoch, self._loads, self._version), False, events)
        if self._image is None or self._image[0] != self._version:
            self._image = self._version, [encode_event(event) for event in directory.every()]
        every, goes_on = self._image[1], known[:3] == (epoch, self._loads, self._version) and known.taken > 0
        first = known.taken if goes_on else 0
        end = min(first + _PAGE_EVENTS, len(every))
        state = DirectoryState(epoch, self._loads, self._version, -1 if end == len(every) else end)
        return DirectoryPage(state, not goes_on, every[first:end])


class DirectoryCopy:
    """The last directory that this node has received in whole; None: none so far."""

    def __init__(self) -> None:
        self.state = DIRECTORY_UNKNOWN
        self.directory: Directory | None = None
        self._received = Directory()  # the next one, until it is complete

    def take(self, asked: DirectoryState, page: DirectoryPage) -> bool:
        """Apply a response to a request from state `asked`; returns whether the copy is complete and up to date."""
        if asked != self.state:
            # Concurrent requests got their response first.
            return self.state.taken < 0 and self.state[:2] == page.state[:2] and self.state[2] >= page.state[2]
        if page.whole:
            self._received = Directory()
        for event in page.events:
            self._received.apply(_decoded(event))
        self.state = page.state
        if page.state.taken < 0:
            self.directory = self._received
        return page.state.taken < 0


def _decoded(event: bytes) -> InventoryEvent:
    try:
        return decode_event(DecodedRecord(-1, 0, None, event, ()))
    except BatchCorrupt as error:
        raise OutcomeUnknown(f"the directory cannot be read: {error}") from None
