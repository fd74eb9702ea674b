"""A metadata log that is damaged or gone: nothing is taken for deleted that it does not say was."""

import pytest

from duramen.base.errors import LogDamaged
from duramen.sim.broker import ManualBroker

METADATA = "logs/1/00000000000000000000.log"


def stored() -> tuple[ManualBroker, str]:
    """A broker stopped in good order after a record was written, and the directory of its log."""
    hand = ManualBroker()
    directory = hand.create("a").partition(0).log.directory
    hand.produce("a", b"kept")
    hand.advance(2000)
    hand.stop()
    return hand, directory


def lose(hand: ManualBroker, *prefixes: str) -> None:
    for path in hand.files.paths():
        if path.startswith(prefixes):
            hand.files.unlink(path)


def test_a_damaged_metadata_log_is_named_with_the_way_out() -> None:
    hand, directory = stored()
    content = bytes(hand.files.open(METADATA).read(0, 1 << 20))
    hand.files.corrupt(METADATA, 100)
    with pytest.raises(
        LogDamaged, match=rf"^the metadata log \(logs/1\) is damaged: {METADATA}: bytes 0 to \d+ .*backup"
    ):
        hand.start()
    assert hand.files.exists(f"{directory}/00000000000000000000.log")
    hand.files.locks.clear()
    hand.files.open(METADATA).write([content], 0)
    hand.start()
    assert hand.values("a") == [b"kept"]


def test_records_outlive_a_metadata_log_that_is_gone() -> None:
    hand, directory = stored()
    path = f"{directory}/00000000000000000000.log"
    content = bytes(hand.files.open(path).read(0, 1 << 20))
    lose(hand, "checkpoint-", "wal/", "logs/1/")
    for _ in range(3):
        hand.reports.clear()
        hand.start()
        assert [stream.name for stream in hand.broker.streams] == []
        assert any(directory in report and "metadata log does not know" in report for report in hand.reports)
        hand.advance(61_000)
        hand.stop()
    assert bytes(hand.files.open(path).read(0, 1 << 20)) == content


def test_after_a_rescue_only_what_was_deleted_is_gone() -> None:
    hand = ManualBroker()
    kept, deleted = hand.create("kept"), hand.create("deleted")
    hand.produce("kept", b"kept")
    hand.produce("deleted", b"deleted")
    hand.advance(2000)
    left = {path: bytes(hand.files.open(path).read(0, 1 << 20)) for path in hand.files.paths()}
    hand.delete("deleted")
    hand.advance(2000)
    hand.stop()
    gone = deleted.partition(0).log.directory
    hand.files.make_directory(gone)
    for path, content in left.items():
        if path.startswith(f"{gone}/"):
            hand.files.open(path, create=True).write([content], 0)
    lose(hand, "checkpoint-", "wal/")
    hand.start()
    hand.advance(2000)
    assert hand.values("kept") == [b"kept"]
    assert not any(path.startswith(f"{gone}/") for path in hand.files.paths())
    assert hand.files.exists(f"{kept.partition(0).log.directory}/00000000000000000000.log")
