"""Whose turn it is: in time for its lag, one round at a time, and nobody waits for those that fail."""

from duramen.spark.translation.scheduler import RoundScheduler


def test_streams_are_due_at_once_then_twice_in_their_lag() -> None:
    turns = RoundScheduler()
    turns.know({"a": 10_000, "b": 1000}, 100.0)
    assert turns.take(100.0, 8) == ["a", "b"]
    assert turns.take(100.0, 8) == []
    turns.done("a", 101.0, behind=False)
    turns.done("b", 101.0, behind=True)
    assert turns.take(101.0, 8) == ["b"]
    turns.done("b", 102.0, behind=False)
    assert turns.wait_s(102.0, 8) == 0.5
    assert turns.take(102.5, 8) == ["b"]
    assert turns.take(105.9, 8) == []
    assert turns.take(106.0, 8) == ["a"]


def test_no_more_are_at_work_than_may_be() -> None:
    turns = RoundScheduler()
    turns.know({"a": 1000, "b": 1000, "c": 1000}, 0.0)
    assert turns.take(0.0, 2) == ["a", "b"]
    assert turns.wait_s(0.0, 2) is None
    turns.done("a", 1.0, behind=True)
    assert turns.take(1.0, 2) == ["c"]
    assert set(turns.busy) == {"b", "c"}


def test_one_that_fails_waits_longer_each_time_and_the_others_do_not() -> None:
    turns = RoundScheduler()
    turns.know({"bad": 1000, "good": 1000}, 0.0)
    now_s, pauses = 0.0, []
    for _ in range(9):
        assert sorted(turns.take(now_s, 8)) == ["bad", "good"]
        turns.done("good", now_s, behind=False)
        turns.failed("bad", now_s)
        turns.know({"bad": 1000}, now_s)
        pauses.append(turns.wait_s(now_s, 8))
        turns.know({"bad": 1000, "good": 1000}, now_s)
        now_s += pauses[-1] or 0
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert turns.failures("bad") == 9
    turns.take(now_s, 8)
    turns.done("bad", now_s, behind=False)
    assert turns.failures("bad") == 0


def test_a_table_that_is_no_more_has_no_turn_even_where_it_is_at_work() -> None:
    turns = RoundScheduler()
    turns.know({"a": 1000}, 0.0)
    assert turns.take(0.0, 8) == ["a"]
    turns.know({}, 0.0)
    turns.done("a", 1.0, behind=True)
    assert turns.take(9.0, 8) == []
    assert turns.wait_s(9.0, 8) is None
