"""How many files and connections the process may have open at once (getrlimit(2), RLIMIT_NOFILE)."""

import contextlib
import resource
from typing import Final

__all__ = ["allow_descriptors"]

_ENOUGH: Final = 65536


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
