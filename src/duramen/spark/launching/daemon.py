"""PySpark's daemon, which forks Python workers, without a traceback where Spark stops reading a worker's output.

Spark closes the connection once it has the rows that it wants, as `show` does, or the plan. A worker's last write fails
then, and that is how the worker learns that it is done.
"""

from socket import socket
from typing import Any

from pyspark import daemon

__all__: list[str] = []

_worker: Any = daemon.worker


def _worker_until_closed(sock: socket, authenticated: bool) -> int:
    """The exit code of a worker's task; after one that is not 0 the worker ends without a word."""
    try:
        return int(_worker(sock, authenticated))
    except ConnectionError:
        return 1


daemon.worker = _worker_until_closed

if __name__ == "__main__":
    daemon.manager()
