"""What a seed does to the disk: which call fails, how, and when the power goes. Every fault is counted by its stage.

The stage is what storage was doing: of a job, it follows from the function that the job runs; on the broker's own
side, it is an append or, until the node has started, the recovery.
"""

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from duramen.sim.damage import DamagedBatch, flip_bit
from duramen.sim.decay import Decayed
from duramen.sim.disk import Crashed, MemoryFileSystem
from duramen.sim.scheduler import SeededWorker
from duramen.sim.trace import Trace

__all__ = ["FAULTS", "STAGES", "UPKEEP", "FaultPlan", "Profile"]

STAGES: Final = (
    "append", "sync", "copy", "roll", "checkpoint", "rewrite", "compaction", "delete", "truncate", "scrub", "read",
    "recovery",
)  # fmt: skip

UPKEEP: Final = ("roll", "checkpoint", "rewrite", "compaction", "delete", "truncate", "scrub", "read")

FAULTS: Final = (
    "power loss", "kill", "torn write", "short write", "read error", "write error", "sync error", "disk full", "slow",
    "bit flip", "cut", "older copy",
)  # fmt: skip

_STAGE_OF_JOB: Final = (
    ("duramen.storage.wal.Wal._sync_job", "sync"),
    ("duramen.storage.flushing.", "sync"),
    ("duramen.storage.wal.", "roll"),
    ("duramen.storage.copier.", "copy"),
    ("duramen.storage.checkpointer.", "checkpoint"),
    ("duramen.storage.rewriting.", "rewrite"),
    ("duramen.storage.compacting.", "compaction"),
    ("duramen.storage.cleaning.", "compaction"),
    ("duramen.storage.rewritten.", "compaction"),
    ("duramen.storage.removal.", "delete"),
    ("duramen.sim.disk.MemoryFileSystem.remove_directory", "delete"),
    ("duramen.storage.cutting.", "truncate"),
    ("duramen.storage.scrubbing.", "scrub"),
)

_PATIENCE: Final = 150

End = Literal["power loss", "kill"]


class Profile(NamedTuple):
    """What a run's disk may do. Rates are per call to the disk."""

    name: str
    ends: tuple[End, ...]  # how a process may end but by being stopped
    calls: int = 120  # about how many calls to the disk until it does
    faults: tuple[str, ...] = ()
    rate: float = 0.0
    of: tuple[str, ...] = STAGES  # the stages in which calls fail
    flips: float = 0.0  # how likely a bit flips in the write-ahead log while no process runs
    decays: float = 0.0  # how likely a file at rest is damaged while no process runs
    decays_at_work: float = 0.0  # the same for a cold segment, per call to the disk


class FaultPlan:
    """Interferes with a disk as a seed draws it. `armed` for one process at a time."""

    def __init__(self, chance: random.Random, profile: Profile, disk: MemoryFileSystem, trace: Trace) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[str] = Counter()
        self.end: End | None = None  # how the process ends, once it does
        self.failed_reads = 0
        self.failed_syncs = 0  # since the process began
        self.failed = 0  # calls that a fault made fail since the process began
        self.starting = False  # whether the broker's own side recovers
        self._chance = chance
        self._profile = profile
        self._disk = disk
        self._trace = trace
        self._worker: SeededWorker | None = None
        self._calls_left = 0
        self._patience = 0  # how many calls the end still waits for a stage
        self._ends_after = False
        self._faulty = False
        self._dead: dict[tuple[str, str], str] = {}  # calls that fail for ever, and by which fault
        self._full_calls = 0
        self._taken_bytes = 0
        self.decay: Callable[[str], None] | None = None  # damages something at rest in the middle of a stage
        self._flipped = False  # since the last process; the next one is let be: one thing after another

    # -- arming -------------------------------------------------------------------------------------

    def arm(self, worker: SeededWorker) -> None:
        """A process begins: from here on its calls may fail, and it may end."""
        self._worker = worker
        self.end = None
        self.failed = self.failed_syncs = 0
        self._dead.clear()
        self._ends_after = False
        chance, profile = self._chance, self._profile
        mean = chance.choice((4, profile.calls // 4, profile.calls, profile.calls * 3))
        self._calls_left = 1 + int(chance.expovariate(1 / mean)) if profile.ends and chance.random() < 0.8 else -1
        self._patience = _PATIENCE
        self._faulty = bool(profile.faults) and chance.random() < 0.8
        if self._flipped:
            self._calls_left, self._faulty, self._flipped = -1, False, False
        self._disk.cold = chance.random() < 0.5
        self._disk.interfere = self._called
        self._disk.happened = self._happened
        self._disk.found_full = self.found_full

    def disarm(self) -> None:
        """The process has ended, or nothing may happen to it any more."""
        self._disk.interfere = self._disk.happened = None
        self._space_again()

    def calm(self) -> None:
        """Nothing fails any more in this process, but its end may still come."""
        self._faulty = False
        self._dead.clear()
        self._space_again()

    # -- stages -------------------------------------------------------------------------------------

    def stage(self, call: str, path: str) -> str:
        """What storage is doing."""
        worker = self._worker
        if worker is None or worker.on_own_side or not worker.jobs:
            own = "recovery" if self.starting else "append"
            return "roll" if own == "append" and call in ("create", "make_directory") else own
        stage = stage_of(worker.jobs[-1])
        return "roll" if stage == "copy" and call in ("create", "make_directory") and path else stage

    # -- calls --------------------------------------------------------------------------------------

    def _called(self, call: str, path: str, size: int) -> int:
        worker = self._worker
        if worker is not None:
            worker.interrupt()
        stage = self.stage(call, path)
        self.calls[stage] += 1
        decay = self.decay if stage in self._profile.of else None
        if decay is not None and self._chance.random() < self._profile.decays_at_work:
            decay(stage)
        if self._calls_left == 0 and not self._ends_after and self._may_end(stage):
            return self._end_now(call, path, size, stage)
        if self._calls_left > 0:
            self._calls_left -= 1
        if self._full_calls:
            self._full_call(call, path, stage)
        if (call, path) in self._dead:
            raise self._failure(self._dead[call, path], call, path, stage, errno.EIO)
        if self._faulty and stage in self._profile.of and self._chance.random() < self._profile.rate:
            return self._fault(call, path, size, stage)
        return size

    def _may_end(self, stage: str) -> bool:
        """Whether this is a stage to end in; not for ever is one waited for."""
        self._patience -= 1
        return stage in self._profile.of or self._patience < 0

    def _end_now(self, call: str, path: str, size: int, stage: str) -> int:
        end: End = self._chance.choice(self._profile.ends)
        self.end = end
        self._count(end, stage, call, path)
        if call == "write" and size > 1 and self._chance.random() < 0.5:
            self._count("torn write", stage, call, path)
            self._ends_after = True
            return self._chance.randint(1, size - 1)
        if self._chance.random() < 0.5 and call != "read":
            self._ends_after = True
            return size
        raise Crashed(f"{self.end} in {call} {path}")

    def _happened(self, call: str, path: str) -> None:
        if self._ends_after:
            raise Crashed(f"{self.end} after {call} {path}")
        if self._worker is not None:
            self._worker.interrupt()

    def _count(self, fault: str, stage: str, call: str, path: str) -> None:
        self.counts[fault, stage] += 1
        self._trace("fault: %s in %s, at %s %s", fault, stage, call, path)

    def flip(self, log_ids: Collection[int]) -> DamagedBatch | None:
        """No process runs: perhaps a bit flips in a batch of these logs."""
        if self._chance.random() >= self._profile.flips:
            return None
        found = flip_bit(self._disk, self._chance, log_ids)
        self._flipped = found is not None
        if found is not None:
            self._count("bit flip", "recovery", f"byte {found.place} of", found.path)
        return found

    @property
    def decays(self) -> bool:
        """Whether a file is to be damaged while no process runs."""
        return self._chance.random() < self._profile.decays

    def decayed(self, found: Decayed, stage: str) -> None:
        """A file at rest was damaged; after the worst of it the next process is let be: one thing after another."""
        self._flipped = self._flipped or found.unchecked
        self._count(found.damage, stage, f"byte {found.place} of", found.path)

    # -- faults -------------------------------------------------------------------------------------

    def _fault(self, call: str, path: str, size: int, stage: str) -> int:
        fitting = [fault for fault in self._profile.faults if _fits(fault, call, size)]
        if not fitting:
            return size
        fault = self._chance.choice(fitting)
        if fault == "slow":
            self._count(fault, stage, call, path)
            if self._worker is not None:
                self._worker.slow_us += self._chance.randint(1_000, 3_000_000)
            return size
        if fault == "short write":
            self._count(fault, stage, call, path)
            return self._chance.randint(1, size - 1)
        if fault == "disk full":
            self._fill()
            self._full_call(call, path, stage)
            return size
        if self._chance.random() < 0.3:
            self._dead[call, path] = fault
        raise self._failure(fault, call, path, stage, errno.EIO)

    def _failure(self, fault: str, call: str, path: str, stage: str, number: int) -> OSError:
        self._count(fault, stage, call, path)
        self.failed += 1
        if call == "read":
            self.failed_reads += 1
        if call == "sync":
            self.failed_syncs += 1
            self._disk.failed_sync = self._chance.choice(("drop", "forget"))
        return OSError(number, os.strerror(number))

    def _fill(self) -> None:
        if self._full_calls:
            return
        self._full_calls = self._chance.randint(1, 60)
        left = self._chance.choice((0, self._chance.randint(0, 20_000)))
        self._taken_bytes = self._disk.free_bytes - left
        self._disk.free_bytes = left
        self._trace("the disk has %d bytes left", left)

    def _full_call(self, call: str, path: str, stage: str) -> None:
        self._full_calls -= 1
        if not self._full_calls:
            self._space_again()
        elif call in ("create", "rename", "make_directory") and self._chance.random() < 0.5:
            raise self._failure("disk full", call, path, stage, errno.ENOSPC)

    def _space_again(self) -> None:
        self._full_calls = 0
        self._disk.free_bytes += self._taken_bytes
        self._taken_bytes = 0

    def found_full(self, call: str, path: str) -> None:
        """The disk itself refused a call for want of space."""
        self.failed += 1
        self._count("disk full", self.stage(call, path), call, path)


def stage_of(job: Callable[[], Any]) -> str:
    """The stage that a job belongs to."""
    function = job.func if isinstance(job, partial) else job
    name = f"{function.__module__}.{function.__qualname__}"
    return next((stage for prefix, stage in _STAGE_OF_JOB if name.startswith(prefix)), "read")


def _fits(fault: str, call: str, size: int) -> bool:
    match fault:
        case "short write":
            return call == "write" and size > 1
        case "read error":
            return call == "read"
        case "write error":
            return call in ("write", "truncate", "allocate", "create", "rename")
        case "sync error":
            return call in ("sync", "sync_directory")
        case "disk full":
            return call in ("write", "allocate", "create", "rename", "make_directory")
        case _:
            return fault == "slow"
