"""Which kind of fault can come in which stage, and why the others cannot: for the report, and for who checks it."""

from typing import Final

__all__ = ["cannot_fire"]

_NO_WRITES: Final = "nothing is written to a file there"
_NO_READS: Final = "nothing is read from the disk there"
_NO_SYNCS: Final = "nothing is synced there"

_CANNOT: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "append": (("read error", "read from memory, or by a job"), ("sync error", _NO_SYNCS)),
    "sync": (("read error", _NO_READS),),
    "copy": (("read error", _NO_READS),),
    "roll": (("read error", _NO_READS),),
    "checkpoint": (("read error", _NO_READS),),
    "rewrite": (),
    "compaction": (),
    "delete": (("read error", _NO_READS),),
    "truncate": (),
    "scrub": (),
    "read": (
        *((fault, _NO_WRITES) for fault in ("torn write", "short write", "write error", "disk full")),
        ("sync error", _NO_SYNCS),
    ),
    "recovery": (),
}


def cannot_fire(fault: str, stage: str) -> str:
    """Why a fault cannot come in a stage; empty where it can."""
    return next((why for kind, why in _CANNOT[stage] if kind == fault), "")
