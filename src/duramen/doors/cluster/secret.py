"""The file with the cluster's secret: every byte of it counts, and every node has the same."""

import errno
import os
import stat
from typing import Final

from duramen.base.errors import SecretUnusable

__all__ = ["SECRET_BYTES", "make_secret", "read_secret"]

SECRET_BYTES: Final = 32
"""The bytes of a new secret, and the minimum for any: the size of a SHA-256."""

_LARGEST_BYTES: Final = 4096
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MAKE_ONE: Final = "`duramen cluster secret FILE` makes one, and every node of the cluster gets a copy"


def read_secret(path: str) -> bytes:
    """The secret. Blocking. Raises SecretUnusable where it is missing, too short, too long, or readable by others."""
    try:
        # A pipe without a writer would block the opening process.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise SecretUnusable(f"{path}: there is no such file; {_MAKE_ONE}") from None
    except (OSError, ValueError) as error:
        raise SecretUnusable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise SecretUnusable(f"{path} is not a file; {_MAKE_ONE}")
        if mode & _OF_OTHERS:
            raise SecretUnusable(
                f"{path} has the mode {stat.S_IMODE(mode):04o}, so others than its owner may use it:"
                f" `chmod 600 {path}`, and make a new one if others may have read it"
            )
        secret = os.read(handle, _LARGEST_BYTES + 1)
    except OSError as error:
        raise SecretUnusable(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(handle)
    if not SECRET_BYTES <= len(secret) <= _LARGEST_BYTES:
        raise SecretUnusable(
            f"{path} must have {SECRET_BYTES} to {_LARGEST_BYTES} bytes and has"
            f" {'more' if len(secret) > _LARGEST_BYTES else len(secret)}; {_MAKE_ONE}"
        )
    return secret


def make_secret(path: str, random_32: bytes) -> None:
    """Make the file, of these bytes and mode 0600, on disk when this returns. Blocking.

    Raises SecretUnusable where there is something of that name, or where it cannot be made.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SecretUnusable(
            f"{path} already exists and is not changed, since a cluster may use it; choose another name for `FILE`"
        ) from None
    except (OSError, ValueError) as error:
        raise SecretUnusable(f"{path} cannot be made: {getattr(error, 'strerror', None) or error}") from None
    try:
        _write_synced(handle, random_32)
        _sync_directory(os.path.dirname(path) or ".")
    except OSError as error:
        os.unlink(path)
        raise SecretUnusable(f"{path} cannot be written: {error.strerror}") from None


def _write_synced(handle: int, content: bytes) -> None:
    try:
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
