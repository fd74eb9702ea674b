"""The limit of open files and connections of the process (getrlimit(2), RLIMIT_NOFILE)."""

import contextlib
import os
import resource
from collections.abc import Callable
from typing import Final

__all__ = ["Descriptors", "allow_descriptors"]

_ENOUGH: Final = 65536
_KEPT_SHARE: Final = 8
_KEPT_LEAST: Final = 32


def allow_descriptors() -> int:
    """Let the process have as many as its user may give it, within reason; returns how many that are.

    The usual 1024 is a bound for programs that use select(2): nothing here does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(ValueError, OSError):  # macOS allows less than it names
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Descriptors:
    """How near the process is to its limit. The last eighth of it is kept for files and for other nodes.

    The system gives each descriptor the lowest free number (POSIX), so that the newest tells how many there are.
    """

    def __init__(self, limit: int, report: Callable[[str], None]) -> None:
        """`report` is called once when the limit is reached, and once when it is not any more."""
        self.limit = limit
        self._most = limit - min(max(limit // _KEPT_SHARE, _KEPT_LEAST), limit // 2)
        self._report = report
        self._reached = False

    @property
    def count(self) -> int:
        """A lower bound of the number of open descriptors."""
        try:
            newest = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            return self.limit
        os.close(newest)
        return newest

    def admit(self, descriptor: int) -> bool:
        """Whether a new connection with this descriptor may stay."""
        if descriptor < self._most:
            return True
        self._note(reached=True)
        return False

    def problem(self) -> str:
        """Why no more connections are taken; empty where they are."""
        try:
            newest = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._note(reached=True)
        else:
            os.close(newest)
            self._note(reached=newest >= self._most)
        return self._words if self._reached else ""

    @property
    def _words(self) -> str:
        return f"{self._most} of {self.limit} file descriptors are open: new client connections are refused"

    def _note(self, *, reached: bool) -> None:
        if reached is not self._reached:
            self._reached = reached
            self._report(
                self._words if reached else "file descriptors are free again: new client connections are accepted"
            )
