"""A query that fails is started again, later every time; what repeating does not mend is given up."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.spark.pipelines.supervisor import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, STEADY_MS, QueryEnd, QuerySupervisor

SOMETHING = QueryEnd("", "a disk is full")


def test_pauses_grow_to_a_minute_and_begin_anew_after_a_steady_run() -> None:
    keeper, now_ms, pauses = QuerySupervisor("q", None), 0, []
    for _ in range(9):
        keeper.started(now_ms)
        keeper.failed(now_ms + 10, SOMETHING)
        due_ms = keeper.due_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms - 10)
        now_ms = due_ms
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    keeper.started(now_ms)
    keeper.failed(now_ms + STEADY_MS, SOMETHING)
    assert keeper.due_ms() == now_ms + STEADY_MS + FIRST_PAUSE_MS
    assert keeper.restarts == 9


def test_what_repeating_does_not_mend() -> None:
    keeper = QuerySupervisor("q", None)
    keeper.started(0)
    keeper.failed(1, QueryEnd("TableForeign", "no", is_permanent=True))
    assert (keeper.state, keeper.is_over, keeper.due_ms()) == ("failed", True, None)
    keeper.stopped()
    assert keeper.state == "failed"


def test_an_error_is_over_once_a_micro_batch_is_done() -> None:
    keeper, seen = QuerySupervisor("q", 1), []
    keeper.started(0)
    keeper.failed(1, SOMETHING)
    keeper.started(1000)
    seen.append(keeper.error)
    keeper.progressed()
    seen.append(keeper.error)
    keeper.failed(2000, SOMETHING)
    keeper.progressed()
    seen.append(keeper.error)
    assert seen == [SOMETHING, None, SOMETHING], "a failure that is the last word stays"
    assert keeper.state == "failed"


def test_the_most_restarts() -> None:
    keeper = QuerySupervisor("q", 1)
    keeper.failed(0, SOMETHING)
    assert keeper.due_ms() == FIRST_PAUSE_MS
    keeper.started(1000)
    keeper.failed(2000, SOMETHING)
    assert keeper.state == "failed"


@given(
    st.lists(st.tuples(st.sampled_from(["start", "fail", "finish", "stop"]), st.integers(0, 2 * STEADY_MS))),
    st.none() | st.integers(0, 3),
)
def test_whatever_happens(events: list[tuple[str, int]], most: int | None) -> None:
    keeper, now_ms, in_a_row = QuerySupervisor("q", most), 0, 0
    for event, passed_ms in events:
        due_ms = keeper.due_ms()
        assert (due_ms is None) == (keeper.state not in ("starting", "waiting"))
        if keeper.is_over:
            assert keeper.state != "failed" or keeper.error is not None
            return
        if event == "start" and due_ms is not None:
            now_ms = max(now_ms, due_ms)
            keeper.started(now_ms)
        elif event == "fail":
            steady = keeper.state == "running" and passed_ms >= STEADY_MS
            in_a_row = 1 if steady else in_a_row + 1
            now_ms += passed_ms
            keeper.failed(now_ms, SOMETHING)
            assert (keeper.state == "failed") == (most is not None and in_a_row > most)
            due_ms = keeper.due_ms()
            if due_ms is not None:
                assert now_ms + FIRST_PAUSE_MS <= due_ms <= now_ms + LONGEST_PAUSE_MS
        elif event == "finish" and keeper.state == "running":
            keeper.finished()
            assert keeper.error is None
        elif event == "stop":
            keeper.stopped()
            assert keeper.is_over
