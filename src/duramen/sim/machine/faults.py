"""The disk faults of a seed: which call fails, how, and when the power fails. Every fault is counted by its stage.

The stage is the current work of storage: for a job, it follows from the job's function; on the broker's side, it is an
append or, until the node has started, the recovery.
"""

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from duramen.sim.machine.aims import CLOSED, OPEN, Aim, draw
from duramen.sim.machine.disk import Crashed, MemoryFileSystem
from duramen.sim.machine.disk_damage import Decayed
from duramen.sim.machine.scheduler import SeededWorker
from duramen.sim.machine.stages import CALLS, DAMAGES, STAGES, fits, stage_of
from duramen.sim.machine.trace import BrokenPromise, Trace
from duramen.sim.machine.wal_damage import DamagedBatch, flip_bit

__all__ = ["FaultPlan", "Profile"]

_PATIENCE: Final = 150
_LED: Final = 0.2

End = Literal["power loss", "kill"]


class Profile(NamedTuple):
    """The possible faults of a run's disk. Rates are per call to the disk."""

    name: str
    ends: tuple[End, ...]  # how a process may end but by being stopped
    calls: int = 120  # about how many calls to the disk until it does
    faults: tuple[str, ...] = ()
    rate: float = 0.0
    of: tuple[str, ...] = STAGES  # the stages in which calls fail
    flips: float = 0.0  # how likely a bit flips in the write-ahead log while no process runs
    decays: float = 0.0  # how likely a file at rest is damaged while no process runs
    decays_at_work: float = 0.0  # the same for a cold segment, per call to the disk
    aims: tuple[str, ...] = ()  # the kinds of fault of which a process is struck by one, in a stage of its own


class FaultPlan:
    """Interferes with a disk as a seed draws it. `armed` for one process at a time."""

    def __init__(
        self,
        chance: random.Random,
        profile: Profile,
        disk: MemoryFileSystem,
        trace: Trace,
        stages: Collection[str] = STAGES,
    ) -> None:
        """`stages` are those that the run has."""
        self._stages = stages
        self.counts: Counter[tuple[str, str]] = Counter()
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
        self.decay: Callable[[str, str], bool] | None = None  # damages files at rest in a stage, on request
        self._aim: Aim | None = None
        self._led = False  # whether the fault that has to come first has come
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
        self._aim, self._led = None, False
        if profile.aims:
            self._take_aim(draw(chance, profile.aims, self._stages))
        if self._flipped:
            self._calls_left, self._faulty, self._flipped, self._aim = -1, False, False, None
        self._disk.cold = chance.random() < 0.5 or self.aimed_at == "read"
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
        self._aim = None
        self._dead.clear()
        self._space_again()

    # -- aims ---------------------------------------------------------------------------------------

    @property
    def aimed_at(self) -> str:
        """The stage that this process is to be struck in; empty where it is none in particular."""
        return self._aim.stage if self._aim is not None else ""

    @property
    def without_indexes(self) -> str:
        """Of which segments this process is to find no indexes: `OPEN`, `CLOSED`, or empty."""
        return self._aim.first if self._aim is not None and self._aim.first in (OPEN, CLOSED) else ""

    def _take_aim(self, aim: Aim) -> None:
        self._aim = aim
        if aim.fault not in DAMAGES:
            self._calls_left = -1
        self._trace("aimed: %s in %s", aim.fault, aim.stage)

    def _is_struck(self, aim: Aim, call: str, size: int, stage: str) -> bool:
        if stage != aim.stage or not fits(aim.fault, call, size):
            return False
        self._led = True
        return self._chance.random() < aim.rate

    def _lead(self, aim: Aim, call: str, path: str, size: int, stage: str) -> None:
        """The fault that has to come first may occur in this call."""
        if stage == aim.first_in and fits(aim.first, call, size) and self._chance.random() < _LED:
            self._come(aim.first, call, path, size, stage)

    def _strike(self, aim: Aim, call: str, path: str, size: int, stage: str) -> int:
        match aim.fault:
            case "power loss" | "kill":
                return self._end_now(call, path, size, stage, aim.fault)
            case "torn write":
                return self._end_now(call, path, size, stage, self._chance.choice(self._profile.ends), torn=True)
            case "bit flip" | "cut" | "older copy":
                if self.decay is not None and self.decay(stage, aim.fault):
                    self._aim = None  # one thing after another
                return size
            case _:
                return self._come(aim.fault, call, path, size, stage)

    # -- stages -------------------------------------------------------------------------------------

    def stage(self, call: str, path: str) -> str:
        """The present stage of the storage."""
        worker = self._worker
        if worker is None or worker.on_own_side or not worker.jobs:
            own = "recovery" if self.starting else "append"
            return "roll" if own == "append" and call in ("create", "make_directory") else own
        stage = stage_of(_function(worker.jobs[-1]))
        return "roll" if stage == "copy" and call in ("create", "make_directory") and path else stage

    # -- calls --------------------------------------------------------------------------------------

    def _called(self, call: str, path: str, size: int) -> int:
        worker = self._worker
        if worker is not None:
            worker.interrupt()
        stage = self.stage(call, path)
        if call not in CALLS[stage]:
            raise BrokenPromise(f"{call} {path}: no such call is known of the stage {stage}")
        decay = self.decay if stage in self._profile.of else None
        if decay is not None and self._chance.random() < self._profile.decays_at_work:
            decay(stage, "")
        if self._aim is not None and not self._ends_after:
            if self._is_struck(self._aim, call, size, stage):
                return self._strike(self._aim, call, path, size, stage)
            if self._aim.first and not self._led:
                self._lead(self._aim, call, path, size, stage)
        if self._calls_left == 0 and not self._ends_after and self._may_end(stage):
            return self._end_now(call, path, size, stage, self._chance.choice(self._profile.ends))
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

    def _end_now(self, call: str, path: str, size: int, stage: str, end: End, *, torn: bool = False) -> int:
        self.end = end
        self._count(end, stage, call, path)
        if torn or (call == "write" and size > 1 and self._chance.random() < 0.5):
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
        fitting = [fault for fault in self._profile.faults if fits(fault, call, size)]
        if not fitting:
            return size
        return self._come(self._chance.choice(fitting), call, path, size, stage)

    def _come(self, fault: str, call: str, path: str, size: int, stage: str) -> int:
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
        left = 0 if self._aim is not None else self._chance.choice((0, self._chance.randint(0, 20_000)))
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


def _function(job: Callable[[], Any]) -> str:
    function = job.func if isinstance(job, partial) else job
    return f"{function.__module__}.{function.__qualname__}"
