"""Standard input, output and error that are closed or cannot be written."""

import errno
import os
import sys

from duramen.base.errors import DuramenError

__all__ = ["StandardStreamClosed", "check_output", "discard_output", "input_descriptor", "output_error"]


class StandardStreamClosed(DuramenError):
    """Standard input or output was closed when the command began, and it needs it."""

    id = "standard-stream-closed"
    safe = "Nothing was done."
    remedy = "Start the command with standard input and output open, or send its output to /dev/null."


def check_output() -> None:
    """Raise StandardStreamClosed where there is no standard output.

    Descriptors 0 to 2 that are closed are taken by the null device, lest a file or socket of ours gets one of them.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        raise StandardStreamClosed("standard output is closed; send it to /dev/null to discard it")


def input_descriptor() -> int:
    """The descriptor of standard input. Raises StandardStreamClosed."""
    if sys.stdin is None:
        raise StandardStreamClosed("standard input is closed; the command reads its input from there")
    return sys.stdin.fileno()


def output_error() -> OSError | None:
    """The error because of which pending standard output cannot be written; None if nothing is pending."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    except ValueError:
        return OSError(errno.EBADF, os.strerror(errno.EBADF))
    return None


def discard_output() -> None:
    """Discard pending standard output: the interpreter would write it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
