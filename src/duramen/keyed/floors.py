"""S0 of one replica of a keyed partition: the refused snapshots, the value on disk, and the agreed value. Pure.

The leader raises S0. It travels with the high watermark; replicas store it on disk and report the stored value. Only
the value that every replica eligible for leadership has reported is *agreed*, and compaction goes no further: so no
later leader opens a snapshot whose records another replica has dropped. A leader also opens no snapshot that an
eligible replica would refuse: its S0 is at least the highest report before it lets a client hold a snapshot open.
"""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["KeptFloor", "SnapshotFloor"]


class KeptFloor(NamedTuple):
    """The value on disk: see `SnapshotFloor`."""

    oldest: int
    copied: int


def _nothing() -> None:
    """Ignore the change."""


class SnapshotFloor:
    """`oldest` is S0: for a leader its own, which never decreases; for a follower its leader's last value.

    `agreed`: below it compaction may drop superseded records. `copied`: records of this log were copied from a log that
    was compacted with this S0, so that older snapshots would lack records. `lowest` and `highest` are those of the
    reports of all eligible replicas, -1 if one is unknown. `moved` is called for values to send, `heard` for received
    ones, `was_cut` if the log was truncated.
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
        """The value of S0 on disk; -1 if unknown, as during a write."""
        return -1 if self._writing is not None else self._kept.oldest

    @property
    def is_kept(self) -> bool:
        """Whether `copied` is on disk, so that it survives a restart."""
        return self._kept.oldest >= 0 and self._kept.copied >= self.copied

    def restore(self, kept: KeptFloor) -> None:
        """Set the value found on disk."""
        self._kept = kept
        self.oldest, self.copied = max(self.oldest, kept.oldest), max(self.copied, kept.copied)

    def write(self) -> KeptFloor | None:
        """The value to write; None if there is none, or a write is in progress. `written` ends the write."""
        wanted = KeptFloor(self.oldest, self.copied)
        if self._writing is not None or self._kept.oldest < 0 or wanted == self._kept:
            return None
        self._writing = wanted
        return wanted

    def written(self, kept: KeptFloor | None) -> None:
        """The write has ended; None: its outcome is unknown."""
        writing, self._writing = self._writing, None
        self._kept = kept or self._kept
        if self._leads:
            self.oldest = max(self.oldest, self._kept.oldest, -1 if writing is None else writing.oldest)

    # -- reports of replicas ------------------------------------------------------------------------

    def hear(self, oldest: int, agreed: int, *, copies: bool) -> bool:
        """The followed replica has sent these values; with `copies`, records before `oldest` are copied.

        Returns whether they are new.
        """
        before = self.oldest, self.agreed, self.copied
        self._leads = False
        self.agreed = max(self.agreed, min(agreed, oldest))
        self.oldest = max(oldest, self.agreed)
        if copies:
            self.copied = max(self.copied, oldest)
        return before != (self.oldest, self.agreed, self.copied)

    def lead(self, end_offset: int) -> None:
        """The replica leads: records missing from its log are nowhere.

        All eligible replicas had at least the agreed S0.

        Values that it received without writing them count for nobody.
        """
        self._leads = True
        self.oldest = max(self.agreed, self._kept.oldest, -1 if self._writing is None else self._writing.oldest)
        self.least = self._kept.oldest
        self.cut(end_offset)

    def raise_oldest(self, oldest: int) -> bool:
        """The leader opens no older snapshots from now on; returns whether that is new."""
        if oldest <= self.oldest:
            return False
        self.oldest = oldest
        return True

    def agree(self) -> bool:
        """The leader computes the agreed value; returns whether it is new."""
        agreed = min(self.lowest(), self.oldest)
        if agreed <= self.agreed:
            return False
        self.agreed = agreed
        return True

    def unite(self) -> bool:
        """The leader refuses snapshots that another eligible replica would refuse; False if a report is unknown."""
        if self.lowest() < 0:
            return False
        self.raise_oldest(self.highest())
        return True

    def cut(self, end_offset: int) -> None:
        """The log was truncated to that end."""
        self.oldest, self.copied = min(self.oldest, end_offset), min(self.copied, end_offset)
        self.agreed = min(self.agreed, self.oldest)
