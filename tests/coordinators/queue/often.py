"""A node that makes checkpoints of queue spaces often, as a program for `NodeProcesses`."""

import gc
import os
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.settings import Settings
from duramen.coordinators.queue.shard import queue_kind
from duramen.node.run import run
from duramen.service import assembly

__all__ = ["PROGRAM", "main"]

_ROOT: Final = str(Path(__file__).parents[3])
_RECORDS: Final = 20
PROGRAM: Final = (
    "-c",
    f"import sys; sys.path.insert(0, {_ROOT!r}); from tests.coordinators.queue.often import main; main(sys.argv[-1])",
)
"""What Python has to run for such a node."""


def main(data_dir: str) -> NoReturn:
    """Run the node until it is stopped."""
    gc.disable()  # as `duramen serve` does
    vars(assembly)["queue_kind"] = partial(queue_kind, _RECORDS)
    raise SystemExit(run(Settings(BROKER, options={"data.dir": data_dir}, environment=os.environ), print))
