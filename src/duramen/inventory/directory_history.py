"""Tenants and namespaces on all nodes: the leader of shard 0 sends each node what is new. Pure."""

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
    """What a node knows of the directory.

    `epoch` and `loads` name the life of the shard that told it, `version` counts events since then; `taken`: how many
    events of the whole are there, -1: all.
    """

    epoch: int
    loads: int
    version: int
    taken: int = -1


DIRECTORY_UNKNOWN: Final = DirectoryState(-1, -1, -1)


class DirectoryPage(NamedTuple):
    """What makes a node's copy that of `state`: events behind what it has, or, with `whole`, all from the first."""

    state: DirectoryState
    whole: bool
    events: Sequence[bytes]


class DirectoryHistory:
    """What has happened to the directory since the shard was loaded."""

    def __init__(self) -> None:
        self._loads = 0
        self._version = 0
        self._recent = deque[bytes](maxlen=_KEPT_EVENTS)
        self._image: tuple[int, list[bytes]] | None = None

    def loaded(self) -> None:
        """The directory is read from rows."""
        self._loads += 1
        self._version, self._image = 0, None
        self._recent.clear()

    def add(self, event: bytes) -> None:
        """One more event of it."""
        self._version += 1
        self._recent.append(event)

    def page(self, epoch: int, directory: Directory, known: DirectoryState) -> DirectoryPage:
        """What a node lacks that knows this much, in the epoch of this leadership."""
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
    """The directory as this node was told of it last."""

    def __init__(self) -> None:
        self.state = DIRECTORY_UNKNOWN
        self.directory = Directory()

    @property
    def is_whole(self) -> bool:
        """Whether all is there that this node was told of."""
        return self.state != DIRECTORY_UNKNOWN and self.state.taken < 0

    def take(self, asked: DirectoryState, page: DirectoryPage) -> bool:
        """Take in an answer to a question asked in a state; whether the copy is whole, and as new as the answer."""
        if asked != self.state:
            # Others have asked meanwhile, and their answer came first.
            return self.state.taken < 0 and self.state[:2] == page.state[:2] and self.state[2] >= page.state[2]
        if page.whole:
            self.directory = Directory()
        for event in page.events:
            self.directory.apply(_decoded(event))
        self.state = page.state
        return page.state.taken < 0


def _decoded(event: bytes) -> InventoryEvent:
    try:
        return decode_event(DecodedRecord(-1, 0, None, event, ()))
    except BatchCorrupt as error:
        raise OutcomeUnknown(f"the directory cannot be read: {error}") from None
