"""Until when the node is known to have listened and lost nothing: kept in a file, so that kill -9 leaves it behind.

Written about every second and never synced: after a power failure it may name an earlier moment, which is no lie.
"""

import contextlib
from typing import Final

from duramen.base.ports import File, FileSystem

__all__ = ["Presence"]

_DIRECTORY: Final = "nats"
_PATH: Final = "nats/listened-until"
_DIGITS: Final = 20


class Presence:
    """A moment, in ms since 1970."""

    def __init__(self, files: FileSystem) -> None:
        """Raises OSError."""
        self._files = files
        files.make_directory(_DIRECTORY)
        self._file: File = files.open(_PATH, create=True)
        with contextlib.suppress(OSError):
            if not self._file.size():
                self.write(0)  # so that it has its place on the disk before that is full

    def read(self) -> int:
        """The moment that the last run left; 0 where there was none. Blocking. Raises OSError."""
        text = bytes(self._file.read(0, _DIGITS))
        return int(text) if len(text) == _DIGITS and text.isdigit() else 0

    def write(self, moment_ms: int) -> None:
        """Keep the moment. Raises OSError."""
        self._file.write([b"%0*d" % (_DIGITS, moment_ms)], 0)
