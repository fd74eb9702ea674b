"""Views beside damage: in their logs, in their own files, and beside logs that are not those they were made of."""

from collections.abc import Callable

import pytest
from tests.broker.views.test_views import Keyed

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import SnapshotNotReached
from duramen.base.memory import memory_share_bytes
from duramen.base.settings import Settings
from duramen.keyed.view import VisibleRecords
from duramen.sim.broker import CallbackResult
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.log.log import Log
from duramen.storage.maintenance.repair import Patch
from duramen.storage.segment.segment import Segment

MINUTE_MS = 60_000


def log_of(keyed: Keyed) -> Log:
    return keyed.hand.broker.streams.get("users").partition(0).log


def on_disk(count: int = 100) -> Keyed:
    """A stream whose records are in the files of several segments."""
    keyed = Keyed(snapshot_retention_ms=3_600_000)
    for number in range(count):
        keyed.produce((b"k%d" % (number % 30), b"%d" % number * 10))
    keyed.hand.restart()
    return keyed


def corrupt(keyed: Keyed, segment: Segment) -> int:
    """Damage the middle of a segment; returns an offset that is damaged."""
    keyed.hand.files.corrupt(f"{segment.path}.log", segment.size // 2)
    return segment.base_offset


def without_view(keyed: Keyed, damage: Callable[[Segment], object]) -> Segment:
    """Start again with a segment damaged and the view lost."""
    keyed.hand.stop()
    segment = log_of(keyed).segments[2]
    damage(segment)
    for name in keyed.hand.files.names("keyed"):
        keyed.hand.files.remove_directory(f"keyed/{name}")
    keyed.hand.start()
    return log_of(keyed).segments[2]


def test_a_view_that_stands_behind_damage_goes_on() -> None:
    keyed = on_disk()
    keyed.hand.stop()
    corrupt(keyed, log_of(keyed).segments[2])
    keyed.hand.start()
    keyed.produce((b"k1", b"new"))
    assert (keyed.view.facts.position, keyed.view.facts.problem) == (101, "")
    assert len(offsets(keyed, 101)) == 30


def offsets(keyed: Keyed, at: int) -> list[int]:
    answer: CallbackResult[VisibleRecords] = CallbackResult()
    keyed.view.shown(at, None, 0, at, answer)
    keyed.hand.settle()
    return answer.value.offsets()


def test_a_view_before_damage_says_what_is_missing_and_goes_on_once_it_is_repaired() -> None:
    keyed = on_disk()
    right: list[bytes] = []
    files = keyed.hand.files

    def damage(segment: Segment) -> None:
        right.append(bytes(files.open(f"{segment.path}.log").read(0, segment.size)))
        corrupt(keyed, segment)

    segment = without_view(keyed, damage)
    keyed.hand.advance(2 * MINUTE_MS)
    facts = keyed.view.facts
    assert segment.base_offset <= facts.position < segment.end_offset
    assert f"snapshots end at {facts.position}" in facts.problem
    assert f"(offsets {facts.position} to {facts.position}) are damaged" in facts.problem
    assert sum(report.count("has stopped") for report in keyed.hand.reports) == 1, "it is said once"
    with pytest.raises(SnapshotNotReached):
        offsets(keyed, 100)
    assert offsets(keyed, facts.position)
    patches = [Patch(one, right[0][one.start : one.end]) for one in segment.damage]
    repaired: CallbackResult[bool] = CallbackResult()
    keyed.hand.store.repairer.repair(log_of(keyed), segment, patches, repaired)
    keyed.hand.settle()
    assert repaired.value
    keyed.hand.advance(MINUTE_MS)
    assert (keyed.view.facts.position, keyed.view.facts.problem) == (100, "")
    keyed.check(100)


def test_what_a_start_has_lost_for_good_is_passed_over_and_said() -> None:
    keyed = on_disk()
    keyed.configure("false")
    log_of(keyed).damage.append((40, 49))
    keyed.configure("true")
    assert keyed.view.facts.position == 100
    [said] = [report for report in keyed.hand.reports if "passes over" in report]
    assert "offsets 40 to 49" in said
    shown = offsets(keyed, 60)
    assert not set(shown) & set(range(40, 50))
    assert 10 in shown, "what superseded it is lost"


# -- files of the view ----------------------------------------------------------------------------------


def scrub(keyed: Keyed) -> None:
    keyed.hand.store.scrubber.stop()  # the one that the node has begun
    keyed.hand.store.scrubber.start(1 << 30, 10 * MINUTE_MS)
    keyed.hand.advance(3 * MINUTE_MS)
    keyed.hand.store.scrubber.stop()


def names(files: MemoryFileSystem, prefix: str) -> list[str]:
    [directory] = files.names("keyed")
    return [f"keyed/{directory}/{name}" for name in files.names(f"keyed/{directory}") if name.startswith(prefix)]


@pytest.mark.parametrize("kind", ["view.", pytest.param("prev-", marks=pytest.mark.long)])
def test_the_scrubber_finds_damaged_files_of_views_and_they_are_made_again(kind: str) -> None:
    keyed = on_disk(30)
    more = 70_000 if kind == "prev-" else 100
    keyed.produce(*((b"k%d" % (number % 50), b"v") for number in range(more)))
    keyed.hand.restart()
    scrub(keyed)
    assert not any("written to disk again" in report for report in keyed.hand.reports)
    path = names(keyed.hand.files, kind)[0]
    keyed.hand.files.corrupt(path, 100)
    scrub(keyed)
    assert [path in report for report in keyed.hand.reports if "is written to disk again" in report] == [True]
    keyed.hand.reports.clear()
    scrub(keyed)
    assert keyed.hand.reports == []
    keyed.check(30 + more)
    keyed.hand.restart()
    assert keyed.hand.reports == []
    keyed.check(30 + more)


def put_back(files: MemoryFileSystem, content: dict[str, bytes]) -> None:
    for path, data in content.items():
        files.make_directory(path.rpartition("/")[0])
        files.unlink(path)
        file = files.open(path, create=True)
        file.write([data], 0)
        file.sync()


@pytest.mark.parametrize(("after", "said"), [(0, "and the log ends at"), (40, "of a history that was cut")])
def test_a_checkpoint_that_is_not_of_this_log_is_discarded(after: int, said: str) -> None:
    """A backup of the log from before, then other records, and the view of what was written first."""
    keyed = on_disk(20)
    keyed.hand.stop()
    files = keyed.hand.files
    before = {path: files.content(path) for path in files.paths()}
    written = list(keyed.written)
    keyed.hand.start()
    for number in range(20):
        keyed.produce((b"k%d" % number, b"first"))
    keyed.hand.stop()
    view = {path: files.content(path) for path in files.paths() if path.startswith("keyed/")}
    keyed.hand.files = MemoryFileSystem()
    put_back(keyed.hand.files, before)
    keyed.written = written
    keyed.hand.start()
    keyed.hand.restart()  # another leadership than the one that wrote what is lost
    for number in range(after):
        keyed.produce((b"k%d" % number, b"second"))
    keyed.hand.stop()
    put_back(keyed.hand.files, view)
    keyed.hand.start()
    assert any(said in report and "rebuilt" in report for report in keyed.hand.reports), keyed.hand.reports
    keyed.check(20 + after)


# -- memory ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_table_moves_into_files_where_the_part_of_the_memory_is_taken_and_back_once_there_is_room() -> None:
    keyed = Keyed(settings={"memory.limit.bytes": 128 << 20})
    views = keyed.hand.broker.views
    share = memory_share_bytes(128 << 20)
    for first in range(0, 1_000_000, 50_000):
        keyed.produce(*((b"%d" % key, b"") for key in range(first, first + 50_000)))
        assert views.memory_bytes < share + (4 << 20)
    keyed.hand.advance(MINUTE_MS)
    facts = keyed.view.facts
    assert (facts.is_filed, facts.position, facts.keys, facts.problem) == (True, 1_000_000, 1_000_000, "")
    assert len(offsets(keyed, facts.position)) == facts.keys
    keyed.hand.stop()
    keyed.hand.settings = Settings(BROKER, options={"memory.limit.bytes": 512 << 20})
    keyed.hand.start()
    facts = keyed.view.facts
    assert (facts.is_filed, facts.position, facts.keys, facts.problem) == (False, 1_000_000, 1_000_000, "")


@pytest.mark.long
def test_views_stand_still_where_files_do_not_help_and_go_on_once_there_is_room() -> None:
    """The page of distances alone takes more than there is."""
    keyed = Keyed(settings={"memory.limit.bytes": 128 << 20})
    keyed.hand.stop()
    keyed.hand.settings = Settings(BROKER, options={"memory.limit.bytes": 128 << 20})
    keyed.hand.view_limits = keyed.hand.view_limits._replace(page_records=1 << 22)
    keyed.hand.start()
    keyed.produce((b"k", b"v"))
    keyed.hand.advance(MINUTE_MS)
    assert "of memory.limit.bytes are for them: raise it" in keyed.view.facts.problem
    keyed.hand.stop()
    keyed.hand.settings = Settings(BROKER, options={"memory.limit.bytes": 512 << 20})
    keyed.hand.start()
    assert (keyed.view.facts.position, keyed.view.facts.problem) == (1, "")
