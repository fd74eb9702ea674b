# What Duramen uses of psutil, which comes without types.
from typing import NamedTuple

class _Memory(NamedTuple):
    rss: int

class _Times(NamedTuple):
    user: float
    system: float

class Process:
    def __init__(self, pid: int | None = None) -> None: ...
    def memory_info(self) -> _Memory: ...
    def cpu_times(self) -> _Times: ...
