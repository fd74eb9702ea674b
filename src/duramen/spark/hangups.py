"""Closed connections of Python workers: Spark closes one after a LIMIT is reached, or after an idle minute.

PySpark's daemon treats the worker's failed last write as an error and prints its traceback.
"""

import sys
from typing import Any, Final

__all__ = ["end_this_worker_quietly", "end_workers_quietly"]

_DAEMON: Final = "pyspark/daemon.py"
_DONE: Final = "_duramen_hangups"


def end_workers_quietly(daemon: Any) -> None:
    """Make that daemon's workers end silently when Spark has closed the connection."""
    if hasattr(daemon, _DONE):
        return
    work = daemon.worker

    def worker(*given: Any) -> int:
        try:
            return int(work(*given))
        except ConnectionError:
            return 1  # it ends the process

    daemon.worker = worker
    setattr(daemon, _DONE, True)


def end_this_worker_quietly() -> None:
    """Do the same in a worker forked by any daemon, from its next task on."""
    main: Any = sys.modules.get("__main__")
    if str(getattr(main, "__file__", "")).endswith(_DAEMON) and hasattr(main, "worker"):
        end_workers_quietly(main)
