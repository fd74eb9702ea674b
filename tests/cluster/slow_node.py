"""A node whose disk can be made slow while it runs: `slow_node.py serve --data-dir DIRECTORY`.

A sync takes as many seconds as the file `slow` beside the directory says, and no longer where there is none.
"""

import gc
import os
import sys
from pathlib import Path
from typing import Final

from duramen.base.catalogue import BROKER
from duramen.base.settings import Settings
from duramen.bench.slow_node import SlowFiles
from duramen.node.run import run

__all__ = ["PROGRAM", "set_slow"]

PROGRAM: Final = (__file__,)
"""What Python has to run for such a node."""


def set_slow(data_dir: Path, seconds: float) -> None:
    """Let each sync of the node's take so long from now on."""
    place = _place(data_dir)
    (place.parent / f"{place.name}.new").write_text(f"{seconds}")
    (place.parent / f"{place.name}.new").replace(place)


def _place(data_dir: Path) -> Path:
    return data_dir.parent / f"{data_dir.name}.slow"


def _main(data_dir: str) -> int:
    place = _place(Path(data_dir))

    def delay_s() -> float:
        try:
            return float(place.read_text())
        except FileNotFoundError:
            return 0.0

    gc.disable()  # as `duramen serve` does
    settings = Settings(BROKER, options={"data.dir": data_dir}, environment=os.environ)
    return run(settings, print, through=lambda files: SlowFiles(files, delay_s))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[-1]))
