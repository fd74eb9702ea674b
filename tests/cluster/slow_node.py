"""A node whose disk can be made slow or faulty while it runs.

A sync takes as many seconds as a file beside the directory says, and the disk fails as another one says; neither where
there is no such file.
"""

import gc
import os
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from tests.cluster.faulty_disk import FaultyFiles

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.ports import FileSystem
from duramen.base.settings import Settings
from duramen.bench.slow_node import SlowFiles
from duramen.node.run import run

__all__ = ["PROGRAM", "main", "set_fault", "set_slow"]

_ROOT: Final = str(Path(__file__).parents[2])
PROGRAM: Final = (
    "-c",
    f"import sys; sys.path.insert(0, {_ROOT!r}); from tests.cluster.slow_node import main; main(sys.argv[-1])",
)
"""What Python has to run for such a node."""


def set_slow(data_dir: Path, seconds: float) -> None:
    """Let each sync of the node's take so long from now on."""
    _write(_place(data_dir, "slow"), f"{seconds}")


def set_fault(data_dir: Path, fault: str) -> None:
    """Let the node's disk fail so from now on: see `faulty_disk`; empty: not any more."""
    _write(_place(data_dir, "fault"), fault)


def _write(place: Path, content: str) -> None:
    new = place.parent / f"{place.name}.new"
    new.write_text(content)
    new.replace(place)


def _place(data_dir: Path, what: str) -> Path:
    return data_dir.parent / f"{data_dir.name}.{what}"


def _told(place: Path) -> str:
    try:
        return place.read_text()
    except FileNotFoundError:
        return ""


def _files(slow: Path, fault: Path, files: FileSystem) -> FileSystem:
    return FaultyFiles(SlowFiles(files, lambda: float(_told(slow) or 0)), lambda: _told(fault))


def main(data_dir: str) -> NoReturn:
    """Run the node until it is stopped."""
    slow, fault = _place(Path(data_dir), "slow"), _place(Path(data_dir), "fault")
    gc.disable()  # as `duramen serve` does
    settings = Settings(BROKER, options={"data.dir": data_dir}, environment=os.environ)
    raise SystemExit(run(settings, print, through=partial(_files, slow, fault)))
