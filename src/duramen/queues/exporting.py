"""Pages of all entries of a shard, from its view: the runs of each queue with all operations applied. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from duramen.base.ports import StateRows
from duramen.codec.exports import RunsPage
from duramen.queues.rows import (
    Overlay,
    QueueState,
    name_key,
    number_of,
    overlay_key,
    overlay_of,
    state_key,
    state_value_of,
    with_overlay,
)
from duramen.queues.runs import Run, runs

__all__ = ["runs_page"]

_HASH: Final = slice(1, 17)
_NO_OVERLAYS: Final[dict[int, Overlay]] = {}


def runs_page(rows: StateRows, first: bytes, end: bytes, after: bytes, max_bytes: int) -> RunsPage:
    """About `max_bytes` of runs, at least one, of queues with `first <= hash < end`; an empty `end` means no end.

    `after` is that of the previous page.
    """
    found, size, following = list[tuple[bytes, bytes]](), 0, None
    begin = b"r" + after + b"\x00" if after else b"r" + first
    for key, run in rows.scan(begin, b"r" + end if end else b"s"):
        if size >= max_bytes:
            following = found[-1][0][1:]
            break
        found.append((key, run))
        size += len(key) + len(run)
    if not found:
        return RunsPage([], [], [], None)
    hashes = [key[_HASH] for key, _ in found]
    counts = Counter(hashes)
    names = [name or b"" for name in rows.get_many([*map(name_key, counts)])]
    values = rows.get_many([*map(state_key, counts)])
    states = {queue: state_value_of(value) for queue, value in zip(counts, values, strict=True) if value is not None}
    overlays = _overlays(rows, hashes[0], Run(found[0][1]).first, found[-1][0])
    data = [run for _, run in found]
    if states or overlays:
        data = [
            _applied(run, states.get(queue), overlays.get(queue, _NO_OVERLAYS))
            for queue, run in zip(hashes, data, strict=True)
        ]
    return RunsPage(names, [*counts.values()], data, following)


def _overlays(rows: StateRows, queue: bytes, first: int, last_run: bytes) -> dict[bytes, dict[int, Overlay]]:
    """The overlays by queue, from an offset of one queue to the end of the last run."""
    found: dict[bytes, dict[int, Overlay]] = {}
    end = overlay_key(last_run[_HASH], number_of(last_run) + 1)
    for key, value in rows.scan(overlay_key(queue, first), end):
        found.setdefault(key[_HASH], {})[number_of(key)] = overlay_of(value)
    return found


def _applied(run: bytes, state: QueueState | None, overlays: dict[int, Overlay]) -> bytes:
    """A run with its overlays applied; acknowledged entries count as deleted."""
    if state is None and not overlays:
        return run
    old = Run(run)
    if not overlays and state is not None and not state.done and state.head <= old.first:
        return run

    def bodies() -> Iterator[tuple[int, bytes]]:
        for offset, body in old.bodies():
            done = state is not None and state.done_with(offset)
            yield offset, b"" if done else with_overlay(body, overlays.get(offset))

    return next(runs(bodies(), old.leader_epoch, 1 << 40))[1]
