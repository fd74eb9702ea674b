"""Runs the command in forks of a process that has loaded it: each run is a process of its own, and imports nothing.

The server (`python -m tests.cli.forking FD`) gets a request for each run: words, environment and directory, with the
standard streams and a pipe, into which it writes the id of the process and then its exit code.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

_LARGEST_REQUEST: Final = 100_000
_LOADED: Final = (
    "click._textwrap", "encodings.idna", "duramen.cli.commands", "duramen.cli.cluster.command", "duramen.cli.config",
    "duramen.cli.group", "duramen.cli.log.command", "duramen.cli.log.verify", "duramen.cli.log.salvage",
    "duramen.cli.inventory.namespace", "duramen.cli.inventory.policy", "duramen.cli.inventory.tenant",
    "duramen.cli.inventory.topic", "duramen.cli.queues.command", "duramen.cli.records.consume",
    "duramen.cli.records.produce", "duramen.cli.snapshot", "duramen.cli.streams.stream", "duramen.client",
)  # fmt: skip


class ForkServer:
    """The server, from the side of the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.forking", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], cwd: Path | None, streams: Sequence[int]
    ) -> int | None:
        """Start `duramen WORDS…` with these standard streams.

        Returns the end of a pipe with the process id and, once it has ended, its exit code; None: the request is too
        large.
        """
        request = json.dumps([list(words), dict(environment), str(cwd or Path.cwd())]).encode()
        if len(request) > _LARGEST_REQUEST:
            return None
        ours, theirs = os.pipe()
        try:
            socket.send_fds(self._socket, [request], [*streams, theirs])
        finally:
            os.close(theirs)
        return ours


@cache
def fork_server() -> ForkServer:
    """The server of this process, which ends with it."""
    return ForkServer()


def _serve(requests: socket.socket) -> tuple[list[str], dict[str, str], str] | None:
    """Returns in the process of each run with its words, environment and directory; None at the end of the tests."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 4)
        if not request:
            return None
        if os.fork() == 0:
            requests.close()
            break
        for descriptor in descriptors:
            os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, report = descriptors
    process_id = os.fork()
    if process_id:
        for descriptor in (0, 1, 2, *streams):
            os.close(descriptor)
        os.write(report, b"%d\n" % process_id)
        _, status = os.waitpid(process_id, 0)
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(report)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    words, environment, cwd = json.loads(request)
    return words, environment, cwd


def _main() -> None:
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()  # no collection of a run touches what it shares with the server
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    run = _serve(socket.socket(fileno=int(sys.argv[1])))
    if run is None:
        return
    words, environment, cwd = run
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = cwd
    sys.argv[1:] = words
    runpy.run_module("duramen", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
