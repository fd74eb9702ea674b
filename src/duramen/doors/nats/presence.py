"""The last moment at which the node is known to have listened without loss, in a file that survives kill -9.

Written about every second and never synced: after a power failure it may have an earlier moment, which only makes the
recorded gap longer.
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
        """The time that the last run left; 0 if there is none. Blocking. Raises OSError."""
        text = bytes(self._file.read(0, _DIGITS))
        return int(text) if len(text) == _DIGITS and text.isdigit() else 0

    def write(self, moment_ms: int) -> None:
        """Keep the moment. Raises OSError."""
        self._file.write([b"%0*d" % (_DIGITS, moment_ms)], 0)
