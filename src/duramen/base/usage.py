"""Resource use of a node and what is left of its machine.

Separate, because the HTTP door is imported once a node is ready.
"""

from typing import NamedTuple

__all__ = ["Usage"]


class Usage(NamedTuple):
    """The start time of the process, the free space of the data directory's disk, and its file descriptors."""

    uptime_ms: int = 0
    disk_free_bytes: int = 0
    descriptors: int = 0
    descriptors_limit: int = 0
