"""S0 of one replica of a keyed partition: the refused snapshots, the value on disk, and the agreed value. Pure.

The leader raises S0. It travels with the high watermark; replicas store it on disk and report the stored value. Only
the value that every replica eligible for leadership has reported is *agreed*, and compaction goes no further: so no
later leader opens a snapshot of which another replica has dropped records. A leader also opens no snapshot that an
eligible replica would refuse: its S0 is at least the highest report before it lets a client hold a snapshot open.
"""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["KeptFloor", "SnapshotFloor"]


class KeptFloor(NamedTuple):
    """What is on disk of it: see `SnapshotFloor`."""

    oldest: int
    copied: int


def _nothing() -> None:
    """Nobody has to be told."""


class SnapshotFloor:
    """`oldest` is S0: of a leader its own, which never falls; of a follower what its leader said last.

    `agreed`: below it compaction may drop what is superseded. `copied`: records of this log were copied from a log that
    was compacted as of there, so that older snapshots would lack records. `lowest` and `highest` are the reports of all
    who may lead, -1 where one is not known. `moved` is called for what others are to be told, `heard` for what has
    come, `was_cut` where the log has lost what is behind an offset.
    """

    __slots__ = (
        "_kept", "_leads", "_writing", "agreed", "copied", "heard", "highest", "least", "lowest", "moved", "oldest",
        "was_cut",
    )  # fmt: skip

    def __init__(self) -> None:
        self.oldest = self.agreed = self.copied = 0
        self.least = -1
        self._kept = KeptFloor(-1, 0)
        self._writing: KeptFloor | None = None
        self._leads = False
        self.lowest: Callable[[], int] = lambda: self.reported
        self.highest: Callable[[], int] = lambda: self.reported
        self.moved: Callable[[], None] = _nothing
        self.heard: Callable[[], None] = _nothing
        self.was_cut: Callable[[int], None] = lambda _: None

    # -- on disk ------------------------------------------------------------------------------------

    @property
    def reported(self) -> int:
        """What of S0 is on disk; -1 where that is not known, as while it is written."""
        return -1 if self._writing is not None else self._kept.oldest

    @property
    def is_kept(self) -> bool:
        """Whether what this log was copied from is on disk, so that a start does not forget it."""
        return self._kept.oldest >= 0 and self._kept.copied >= self.copied

    def restore(self, kept: KeptFloor) -> None:
        """It is on disk, from before."""
        self._kept = kept
        self.oldest, self.copied = max(self.oldest, kept.oldest), max(self.copied, kept.copied)

    def write(self) -> KeptFloor | None:
        """What is to be on disk and is not; None where nothing is, or is being written. `written` says when."""
        wanted = KeptFloor(self.oldest, self.copied)
        if self._writing is not None or self._kept.oldest < 0 or wanted == self._kept:
            return None
        self._writing = wanted
        return wanted

    def written(self, kept: KeptFloor | None) -> None:
        """It is on disk; None: it may be."""
        writing, self._writing = self._writing, None
        self._kept = kept or self._kept
        if self._leads:
            self.oldest = max(self.oldest, self._kept.oldest, -1 if writing is None else writing.oldest)

    # -- what replicas say --------------------------------------------------------------------------

    def hear(self, oldest: int, agreed: int, *, copies: bool) -> bool:
        """The replica that this one follows says so; with `copies` records before `oldest` come along. Is it news?"""
        before = self.oldest, self.agreed, self.copied
        self._leads = False
        self.agreed = max(self.agreed, min(agreed, oldest))
        self.oldest = max(oldest, self.agreed)
        if copies:
            self.copied = max(self.copied, oldest)
        return before != (self.oldest, self.agreed, self.copied)

    def lead(self, end_offset: int) -> None:
        """The replica leads: what its log has not, nobody has. All who may lead had as much of S0 as was agreed.

        What it has heard and not put on its disk nobody counts on.
        """
        self._leads = True
        self.oldest = max(self.agreed, self._kept.oldest, -1 if self._writing is None else self._writing.oldest)
        self.least = self._kept.oldest
        self.cut(end_offset)

    def raise_oldest(self, oldest: int) -> bool:
        """A leader opens no older snapshots from here on; whether that is news."""
        if oldest <= self.oldest:
            return False
        self.oldest = oldest
        return True

    def agree(self) -> bool:
        """A leader looks how far all who may lead have come; whether that is news."""
        agreed = min(self.lowest(), self.oldest)
        if agreed <= self.agreed:
            return False
        self.agreed = agreed
        return True

    def unite(self) -> bool:
        """A leader refuses what another that may lead would refuse; False where that is not known of each yet."""
        if self.lowest() < 0:
            return False
        self.raise_oldest(self.highest())
        return True

    def cut(self, end_offset: int) -> None:
        """The log ends there now."""
        self.oldest, self.copied = min(self.oldest, end_offset), min(self.copied, end_offset)
        self.agreed = min(self.agreed, self.oldest)
