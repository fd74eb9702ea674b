"""Which faults can come in which stage follows from the calls that it makes; and that is checked at every call."""

import random
from contextlib import suppress

import pytest

from duramen.base.ports import File
from duramen.sim.machine.aims import CLOSED, OPEN, draw
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.faults import FaultPlan, Profile
from duramen.sim.machine.scheduler import SeededWorker, VirtualClock
from duramen.sim.machine.stages import CALLS, DAMAGES, FAULTS, FITTING, POSSIBLE, STAGES, cannot_fire, fits, stage_of
from duramen.sim.machine.trace import BrokenPromise, Trace


def armed(profile: Profile, seed: int = 1) -> tuple[MemoryFileSystem, FaultPlan]:
    clock, disk = VirtualClock(), MemoryFileSystem()
    plan = FaultPlan(random.Random(seed), profile, disk, Trace(clock))
    plan.arm(SeededWorker(clock, random.Random(seed), lambda error: error))
    return disk, plan


def new_file(disk: MemoryFileSystem) -> File:
    return disk.open("file", create=True)


def test_a_call_that_a_stage_is_not_known_to_make_ends_the_run() -> None:
    disk, plan = armed(Profile("quiet", ()))
    file = new_file(disk)
    file.write([b"some"], 0)
    with pytest.raises(BrokenPromise, match="no such call is known of the stage append"):
        file.read(0, 4)
    plan.starting = True
    assert file.read(0, 4) == b"some"


def test_every_stage_says_which_calls_it_makes() -> None:
    assert set(CALLS) == set(STAGES)
    assert set(FITTING) < set(FAULTS)
    assert {call for calls in FITTING.values() for call in calls} <= {
        call for calls in CALLS.values() for call in calls
    }


@pytest.mark.parametrize(
    ("fault", "stage"),
    [("torn write", "read"), ("read error", "append"), ("read error", "delete"), ("disk full", "read")],
)
def test_a_fault_that_fits_no_call_cannot_come(fault: str, stage: str) -> None:
    assert "no such call" in cannot_fire(fault, stage)
    assert (fault, stage) not in POSSIBLE


def test_the_power_may_go_anywhere() -> None:
    assert {(fault, stage) for fault in ("power loss", "kill", *DAMAGES) for stage in STAGES} <= set(POSSIBLE)


def test_a_write_of_one_byte_cannot_be_torn() -> None:
    assert fits("torn write", "write", 2)
    assert not fits("torn write", "write", 1)
    assert not fits("torn write", "read", 2)
    assert fits("power loss", "read", 0)


def test_jobs_belong_to_stages_by_what_they_run() -> None:
    assert stage_of("duramen.storage.wal.wal.Wal._sync_job") == "sync"
    assert stage_of("duramen.storage.maintenance.scrubber._SegmentScrub.step") == "scrub"
    assert stage_of("duramen.storage.segment.blocks._read") == "read"


def test_aims_are_at_every_cell_and_say_what_comes_first() -> None:
    chance = random.Random(3)
    drawn = [draw(chance, FAULTS) for _ in range(5000)]
    assert {(aim.fault, aim.stage) for aim in drawn} == set(POSSIBLE)
    assert {(aim.first, aim.first_in) for aim in drawn if aim.stage == "rewrite"} == {("sync error", "checkpoint")}
    assert {aim.first for aim in drawn if aim.stage == "scrub"} == {"", CLOSED}
    assert {aim.stage for aim in drawn if aim.first == OPEN} == {"append", "copy"}
    assert {draw(chance, DAMAGES).fault for _ in range(200)} == set(DAMAGES)


def test_a_process_is_struck_where_it_was_aimed_at() -> None:
    struck = 0
    for seed in range(200):
        disk, plan = armed(Profile("aimed", ("kill",), aims=("write error",)), seed)
        if plan.aimed_at != "append":
            continue
        file = new_file(disk)
        for position in range(60):
            with suppress(OSError):
                file.write([b"some"], position)
        assert set(plan.counts) <= {("write error", "append")}
        struck += plan.counts["write error", "append"] > 0
    assert struck > 0
