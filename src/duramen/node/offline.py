"""The files of a data directory while no node runs on it: for tools that make or read one."""

from pathlib import Path

from duramen.base.ports import FileSystem
from duramen.host.files import HostFileSystem

__all__ = ["data_files"]


def data_files(data_dir: Path) -> FileSystem:
    """The directory's tree. Whoever writes to it takes its lock first: `storage.directory.open_directory`."""
    return HostFileSystem(str(data_dir))
