"""Known request ids beside a model, a list: any times of leaders, any steps, restarts between them."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.ids import Position
from duramen.queues.pending_rows import PendingRows
from duramen.queues.requests import KEPT_MS, remember
from duramen.queues.rows import RequestRow, request_row
from duramen.sim.machine.views import MemoryViewStore

SECOND_MS = 1000
LEAP_MS = 10 * KEPT_MS
DIGEST = bytes(16)

clocks = st.lists(st.one_of(st.integers(-LEAP_MS, LEAP_MS), st.integers(0, 2 * SECOND_MS)), max_size=12)


def hashed(number: int) -> bytes:
    return number.to_bytes(16, "big")


def known(times_ms: list[int], steps: list[int]) -> tuple[MemoryViewStore, list[int]]:
    """The rows after requests at these times, applied in steps of these sizes, and the known requests."""
    rows, at = MemoryViewStore(), 0
    for size in [*steps, len(times_ms)]:
        some = [
            (hashed(number), RequestRow(time_ms, Position(0, number), 1, DIGEST, "purge"))
            for number, time_ms in enumerate(times_ms[at : at + size], at)
        ]
        at += len(some)
        pending = PendingRows(rows)
        remember(pending, some)
        puts = [(key, value) for key, value in pending.changes.items() if value is not None]
        rows.write(puts, [key for key, value in pending.changes.items() if value is None])
    return rows, [number for number in range(len(times_ms)) if request_row(rows, hashed(number)) is not None]


@settings(max_examples=examples(30))
@given(clocks, st.lists(st.integers(1, 3), max_size=5), st.integers(1, 700), st.lists(st.integers(1, 500), max_size=4))
@example([LEAP_MS], [1], 1, [])
def test_a_request_is_known_for_ten_minutes_whatever_clocks_say(
    leaps_ms: list[int], steps: list[int], seconds: int, more: list[int]
) -> None:
    """A leader's clock runs, and leaps between; each of its seconds has a request."""
    times_ms = [LEAP_MS]
    for leap_ms in [*leaps_ms, *[SECOND_MS] * seconds]:
        times_ms.append(times_ms[-1] + leap_ms)
    ages_ms = [0]
    for before_ms, time_ms in zip(times_ms[:0:-1], times_ms[-2::-1], strict=True):
        ages_ms.append(ages_ms[-1] + max(0, min(SECOND_MS, before_ms - time_ms)))
    expected = [number for number, age_ms in enumerate(reversed(ages_ms)) if age_ms < KEPT_MS]
    rows, found = known(times_ms, [*steps, *more])
    assert found == expected
    assert list(rows.scan(b"", b"\xff")) == list(known(times_ms, [])[0].scan(b"", b"\xff"))
