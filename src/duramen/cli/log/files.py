"""A file of a data directory under inspection: locked meanwhile, and its possible errors."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from duramen.base.errors import DuramenError

__all__ = ["FileUnreadable", "held_file"]

_DEEPEST: Final = 3  # logs/<id>/<segment>


class FileUnreadable(DuramenError):
    """The argument is no file of a data directory, or is damaged."""

    id = "segment-unreadable"
    safe = "Nothing was changed: the file was only read."
    remedy = "Name a file of a data directory; `duramen log salvage` saves the records around damage."


@contextlib.contextmanager
def held_file(file: Path) -> Iterator[None]:
    """Hold the data directory that `file` lies in, if it lies in one. Raises DirectoryUnusable where a node does."""
    from duramen.node.offline import hold, is_data_dir

    directory = next((parent for parent in file.absolute().parents[:_DEEPEST] if is_data_dir(parent)), None)
    with contextlib.nullcontext() if directory is None else hold(directory, damaged=True):
        yield
