"""A bounded cache of open segment files: the most recently used stay open."""

from collections import OrderedDict
from contextlib import suppress

from duramen.base.errors import LogDamaged, StorageFailed
from duramen.base.ports import File, FileSystem
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.quarantine import Quarantine
from duramen.storage.segment.segment import Segment

__all__ = ["Handles"]


class Handles:
    """Opens segments' files on first use and releases the least recently used.

    A released file is closed once no slice uses it.
    """

    __slots__ = ("_files", "_limit", "_open", "quarantine")

    def __init__(self, files: FileSystem, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._open: OrderedDict[Segment, None] = OrderedDict()
        self.quarantine = Quarantine()

    def open(self, segment: Segment) -> File | None:
        """The segment's file; None if it is completely in memory.

        Raises LogDamaged if it is missing, StorageFailed if it cannot be opened.
        """
        if segment.file is not None:
            if segment in self._open:
                self._open.move_to_end(segment)
            return segment.file
        if segment.copied == 0:
            return None
        segment.on_damage = self.quarantine.found
        try:
            file = self._files.open(segment.path + ".log")
        except FileNotFoundError:
            last_offset = max(segment.copied_offset() - 1, -1)
            segment.add_damage([Damage(0, segment.copied, segment.base_offset, last_offset, DamageCause.MISSING_FILE)])
            raise LogDamaged(f"{segment.path}.log is missing") from None
        except OSError as error:
            raise StorageFailed(f"{segment.path}.log cannot be opened: {error.strerror or error}") from None
        try:
            index_file = self._files.open(segment.path + ".index")
        except OSError:
            index_file = None  # it is rebuilt, or opened later
        self.keep(segment, file, index_file)
        return file

    def keep(self, segment: Segment, file: File, index_file: File | None) -> None:
        """Keep files that were opened elsewhere."""
        segment.file, segment.index_file = file, index_file
        segment.on_damage = self.quarantine.found
        self._open[segment] = None
        while len(self._open) > self._limit:
            oldest, _ = self._open.popitem(last=False)
            oldest.file = oldest.index_file = None

    def forget(self, segment: Segment) -> None:
        """Release the files of a deleted segment."""
        self.quarantine.forget(segment)
        if self._open.pop(segment, 0) is None:
            segment.file = segment.index_file = None

    def retire(self, segment: Segment) -> None:
        """The segment's files are about to be removed: they stay open while readers use them.

        A slice planned while its bytes were in memory opens the file only when they are read.
        """
        with suppress(LogDamaged, StorageFailed):
            self.open(segment)
        self._open.pop(segment, None)
