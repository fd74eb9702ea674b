"""Whether a standalone cluster's master is there, asked before Java is started: Spark itself tries for minutes."""

import re
import socket
from typing import Final

__all__ = ["unreachable"]

_STANDALONE: Final = re.compile(r"spark://(\S+:\d{1,5}(?:,\S+:\d{1,5})*)")
_TIMEOUT_S: Final = 10.0


def unreachable(master: str) -> str | None:
    """Why nobody answers at `spark://HOST:PORT`, or any of several with commas between; None for other masters."""
    named = _STANDALONE.fullmatch(master)
    problems = []
    for address in named[1].split(",") if named else ():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            problems.append(f"{address} cannot be reached: {getattr(error, 'strerror', None) or error}")
        else:
            return None
    return ", ".join(problems) or None
