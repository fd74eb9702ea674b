"""The stages of storage, the disk calls of each, and so the faults that can occur in it.

Data only. Every call of every run is checked against it: a fault that fits no call of a stage cannot occur there, and
every other one must, in a run of many seeds.
"""

from typing import Final

__all__ = [
    "CALLS",
    "DAMAGES",
    "FAULTS",
    "FITTING",
    "POSSIBLE",
    "STAGES",
    "UPKEEP",
    "VIEW",
    "cannot_fire",
    "fits",
    "stage_of",
]

STAGES: Final = (
    "append", "sync", "copy", "roll", "checkpoint", "rewrite", "compaction", "delete", "truncate", "scrub", "read",
    "recovery", "view",
)  # fmt: skip

VIEW: Final = "view"
"""The stage of views of keyed streams, which not all runs have."""

UPKEEP: Final = ("roll", "checkpoint", "rewrite", "compaction", "delete", "truncate", "scrub", "read", "view")

DAMAGES: Final = ("bit flip", "cut", "older copy")

FAULTS: Final = (
    "power loss", "kill", "torn write", "short write", "read error", "write error", "sync error", "disk full", "slow",
    *DAMAGES,
)  # fmt: skip

FITTING: Final[dict[str, tuple[str, ...]]] = {
    "torn write": ("write",),
    "short write": ("write",),
    "read error": ("read",),
    "write error": ("write", "truncate", "allocate", "create", "rename"),
    "sync error": ("sync", "sync_directory"),
    "disk full": ("write", "allocate", "create", "rename", "make_directory"),
}
"""The calls that a kind of fault can come in; those that are not here can come in any."""

_NAMES: Final = ("create", "unlink", "sync", "sync_directory")

CALLS: Final[dict[str, frozenset[str]]] = {
    # Of a segment whose file was missing, the new name is synced before anything is written to it.
    "append": frozenset({"write", "truncate", "sync_directory"}),
    "sync": frozenset({"write", "create", "sync", "sync_directory"}),
    "copy": frozenset({"write", "truncate", "sync_directory"}),
    "roll": frozenset({"write", "allocate", "make_directory", *_NAMES}),
    "checkpoint": frozenset({"write", "rename", *_NAMES}),
    "rewrite": frozenset({"read", "write", "rename", *_NAMES}),
    "compaction": frozenset({"read", "write", "rename", *_NAMES}),
    "delete": frozenset({"write", "rename", "make_directory", *_NAMES}),
    "truncate": frozenset({"read", "write", "truncate", "make_directory", *_NAMES}),
    "scrub": frozenset({"read", "write", "create", "sync"}),
    "read": frozenset({"read"}),
    "recovery": frozenset({"read", "write", "truncate", "allocate", "make_directory", "rename", *_NAMES}),
    "view": frozenset({"read", "write", "make_directory", "rename", *_NAMES}),
}

_STAGE_OF_JOB: Final = (
    ("duramen.storage.wal.wal.Wal._sync_job", "sync"),
    ("duramen.storage.maintenance.flush.", "sync"),
    ("duramen.storage.wal.pool.", "roll"),
    ("duramen.storage.maintenance.copier.", "copy"),
    ("duramen.storage.maintenance.checkpointer.", "checkpoint"),
    ("duramen.storage.maintenance.segment_rewrite.", "rewrite"),
    ("duramen.storage.maintenance.compaction.", "compaction"),
    ("duramen.storage.maintenance.compaction_passes.", "compaction"),
    ("duramen.storage.maintenance.closed_segment.", "compaction"),
    ("duramen.storage.truncation.removal.", "delete"),
    ("duramen.storage.maintenance.delayed_delete.", "delete"),
    ("duramen.sim.machine.disk.MemoryFileSystem.remove_directory", "delete"),
    ("duramen.storage.truncation.cuts.", "truncate"),
    ("duramen.storage.truncation.tail.", "truncate"),
    ("duramen.storage.maintenance.scrubber.", "scrub"),
    ("duramen.broker.views.", VIEW),
)


def stage_of(function: str) -> str:
    """The stage that a job belongs to, by the module and the name of the function that it runs."""
    return next((stage for prefix, stage in _STAGE_OF_JOB if function.startswith(prefix)), "read")


def fits(fault: str, call: str, size: int) -> bool:
    """Whether a kind of fault can come in a call; `size` is how many bytes it is to write."""
    if fault in ("torn write", "short write") and size < 2:
        return False
    return call in FITTING.get(fault, (call,))


def cannot_fire(fault: str, stage: str) -> str:
    """Why a fault cannot come in a stage; empty where it can."""
    fitting = FITTING.get(fault)
    if fitting is None or not CALLS[stage].isdisjoint(fitting):
        return ""
    return f"it makes no such call to the disk: {', '.join(fitting)}"


POSSIBLE: Final = tuple((fault, stage) for fault in FAULTS for stage in STAGES if not cannot_fire(fault, stage))
"""The cells of the report."""
