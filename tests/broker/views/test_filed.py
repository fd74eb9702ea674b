"""Views whose tables of keys lie in files: at work on a node, which stops, crashes, and whose disk is full."""

import errno

from tests.broker.views.test_views import QUICK, SETTINGS, Keyed

from duramen.broker.views.parts import ViewLimits
from duramen.sim.broker import ManualBroker

ROUND_MS = 10_000


class Filed(Keyed):
    """All tables lie in files."""

    def __init__(self, table_bytes: int = 0) -> None:
        limits = ViewLimits(page_records=64, pause_ms=0, table_bytes=table_bytes, round_ms=ROUND_MS)
        self.hand = ManualBroker(SETTINGS, view_limits=limits)
        self.hand.create("users", keyed="true", **{**QUICK, "snapshot_retention_ms": 3_600_000})
        self.written = []

    def fill(self, first: int, count: int) -> None:
        for at in range(first, first + count, 10):
            self.produce(*((b"k%d" % (number % 70), b"%d" % number) for number in range(at, at + 10)))

    def round(self) -> None:
        self.hand.advance(6 * ROUND_MS)


def test_snapshots_are_those_of_the_last_round_and_say_how_old_they_are() -> None:
    keyed = Filed()
    keyed.fill(0, 100)
    keyed.round()
    assert keyed.view.facts.is_filed
    assert (keyed.view.facts.position, keyed.view.age_ms, keyed.view.facts.keys) == (100, 0, 70)
    keyed.fill(100, 50)
    keyed.hand.advance(3_000)
    assert (keyed.view.facts.position, keyed.view.newest) == (100, 100)
    assert 3_000 <= keyed.view.age_ms < 5_000
    keyed.check(100)
    keyed.round()
    assert (keyed.view.facts.position, keyed.view.age_ms) == (150, 0)
    keyed.check(150)
    keyed.check(120, since=40)
    assert keyed.view.facts.file_bytes > 0


def test_a_node_that_stops_or_crashes_goes_on_at_its_last_round() -> None:
    keyed = Filed()
    keyed.fill(0, 100)
    keyed.round()
    keyed.fill(100, 50)
    for end in (keyed.hand.restart, keyed.hand.crash):
        end()
        assert keyed.hand.reports == [report for report in keyed.hand.reports if "from now on" in report]
        assert keyed.view.facts.position >= 100
        keyed.check(100)
        assert keyed.view.facts.is_filed
    keyed.round()
    keyed.check(150)


def test_a_table_that_is_small_enough_is_in_memory_again_after_a_start() -> None:
    keyed = Filed(table_bytes=20_000)
    keyed.fill(0, 100)
    assert keyed.view.facts.file_bytes == 0
    keyed.produce(*((b"%d" % number, b"") for number in range(1000)))
    keyed.round()
    assert keyed.view.facts.file_bytes > 0
    keyed.check(1100)
    keyed.hand.stop()
    keyed.hand.view_limits = ViewLimits(page_records=64, pause_ms=0)
    keyed.hand.start()
    assert keyed.view.facts.file_bytes == 0
    keyed.fill(1100, 10)
    keyed.check(1110)
    keyed.hand.crash()
    keyed.check(1110)


def test_a_full_disk_stops_a_round_which_goes_on_once_there_is_room() -> None:
    keyed = Filed()
    keyed.fill(0, 100)
    keyed.round()
    full = [True]

    def interfere(call: str, path: str, size: int) -> int:
        if call == "write" and "/table-" in path and path.endswith("7") and full:
            raise OSError(errno.ENOSPC, "the disk is full")
        return size

    keyed.hand.files.interfere = interfere
    keyed.fill(100, 50)
    keyed.round()
    assert "the disk is full" in keyed.view.facts.problem
    assert keyed.view.facts.position == 100
    keyed.check(100)
    full.clear()
    keyed.hand.advance(61_000)
    keyed.round()
    assert (keyed.view.facts.position, keyed.view.facts.problem) == (150, "")
    keyed.check(150)


def test_a_damaged_file_has_the_view_built_anew() -> None:
    keyed = Filed()
    keyed.fill(0, 100)
    keyed.round()
    for path in [path for path in keyed.hand.files.paths() if "/table-" in path]:
        keyed.hand.files.corrupt(path, 9)
    keyed.fill(100, 50)
    keyed.round()
    assert any("does not match its checksum" in report for report in keyed.hand.reports)
    assert keyed.view.facts.position == 150
    keyed.check(150)
