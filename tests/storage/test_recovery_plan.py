"""Where the write-ahead log ends and what in it is damage: told from what later frames vouch for."""

from duramen.storage.recovery.plan import FileScan, judge
from duramen.storage.wal.frames import Bad, position


def test_a_sound_log_ends_after_its_last_frame() -> None:
    scans = [FileScan(1, 900, (), 500, 0), FileScan(2, 300, (), position(1, 900), position(1, 900))]
    verdict = judge(scans, position(1, 0))
    assert verdict == (position(2, 300), ())


def test_nothing_to_replay_ends_where_it_begins() -> None:
    assert judge([], position(4, 0)) == (position(4, 0), ())


def test_a_bad_range_that_nothing_vouches_for_is_a_torn_tail() -> None:
    scan = FileScan(1, 900, (Bad(400, 500),), position(1, 300), 0)
    assert judge([scan], position(1, 0)) == (position(1, 400), ())


def test_a_bad_range_that_a_later_frame_vouches_for_is_damage() -> None:
    scan = FileScan(1, 900, (Bad(400, 500),), position(1, 700), 0)
    assert judge([scan], position(1, 0)) == (position(1, 900), ((position(1, 400), position(1, 500)),))


def test_a_range_that_is_vouched_for_in_part_is_damage_up_to_there_and_torn_beyond() -> None:
    scan = FileScan(1, 900, (Bad(400, 600),), position(1, 500), 0)
    assert judge([scan], position(1, 0)) == (position(1, 500), ((position(1, 400), position(1, 500)),))


def test_the_end_of_a_file_that_the_next_one_knows_of_is_not_its_unused_rest() -> None:
    scans = [
        FileScan(1, 700, (), 0, 0),
        FileScan(2, 100, (), position(1, 900), position(1, 900)),
    ]
    assert judge(scans, position(1, 0)) == (position(2, 100), ((position(1, 700), position(1, 900)),))


def test_an_unvouched_end_of_a_file_cuts_the_files_after_it_too() -> None:
    scans = [FileScan(1, 700, (), 0, 0), FileScan(2, 100, (), position(1, 600), position(1, 900))]
    assert judge(scans, position(1, 0)) == (position(1, 700), ())


def test_a_file_that_is_missing_is_damage_where_it_was_vouched_for() -> None:
    scans = [FileScan(1, 900, (), 0, 0), FileScan(3, 100, (), position(2, 800), position(2, 800))]
    assert judge(scans, position(1, 0)) == (position(3, 100), ((position(1, 900), position(2, 800)),))


def test_frames_that_vouch_for_more_than_there_is_name_it_damage() -> None:
    scan = FileScan(1, 400, (), position(1, 650), 0)
    assert judge([scan], position(1, 0)) == (position(1, 650), ((position(1, 400), position(1, 650)),))


def test_what_lies_before_the_replay_position_does_not_matter() -> None:
    scan = FileScan(2, 900, (Bad(100, 200),), position(2, 800), position(1, 77))
    assert judge([FileScan(1, 50, (), 0, 0), scan], position(2, 200)) == (position(2, 900), ())


def test_a_bad_range_across_the_replay_position_is_cut_there_and_no_damage() -> None:
    scan = FileScan(1, 900, (Bad(61, 900),), position(1, 0), 0)
    assert judge([scan], position(1, 500)) == (position(1, 500), ())
