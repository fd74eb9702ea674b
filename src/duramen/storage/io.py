"""Helpers over the file port, shared by several parts of storage."""

import errno
from collections.abc import Sequence

from duramen.base.ports import Buffer, File

__all__ = ["is_full", "is_passing", "write_all"]

_JOIN_BELOW = 256 * 1024


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> None:
    """Write every byte of `buffers` at `position`, continuing after short writes. Raises OSError."""
    total = sum(map(len, buffers))
    if total < _JOIN_BELOW and len(buffers) > 1:
        # One small copy is cheaper than a long list of buffers for the system call.
        buffers = [b"".join(buffers)]
    while True:
        written = file.write(buffers, position)
        if written == total:
            return
        if written <= 0:
            raise OSError(errno.EIO, "a write wrote nothing")
        position += written
        total -= written
        buffers = _rest(buffers, written)


def _rest(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    rest: list[Buffer] = []
    for buffer in buffers:
        if written >= len(buffer):
            written -= len(buffer)
        else:
            rest.append(memoryview(buffer)[written:])
            written = 0
    return rest


def is_full(error: OSError) -> bool:
    """Whether the error is a lack of space (or quota)."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_passing(error: OSError) -> bool:
    """Whether a retry may succeed: the error is a lack of open files, memory or jobs."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
