"""Run as a script: executes another program that the kernel kills when the parent ends (Linux).

    python -I -S tether.py PARENT-PID PROGRAM ARGUMENT…

Imports nothing of Duramen and little else, so that it takes only a few milliseconds. The request survives exec; it is
tied to the parent's thread that started this process, the main thread.
"""

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Never returns. Raises OSError if the kernel refuses or the program cannot be run."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
    if os.getppid() != parent:
        sys.exit("the parent ended before the kernel was asked")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
