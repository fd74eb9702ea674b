"""Views of keyed streams with each implementation, without a node.

Updates per second and core, memory, and snapshot speed. Keys have 16 bytes, values 100, updates are uniform, with a
thousand records per batch, in memory. CPU time is measured; the result is the median of the rounds.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from duramen.base.native import is_installed
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured
from duramen.codec.batch import BatchInput, encode
from duramen.keyed import checkpoint
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.kernel import Kernel
from duramen.keyed.native import native_kernel
from duramen.keyed.plain import PLAIN
from duramen.keyed.prev import MemoryPages
from duramen.keyed.view import KeyedView

__all__ = ["measure_views"]

_BATCH: Final = 1000
_PIECE: Final = 100
"""Batches that are applied at once."""
_KEYS: Final = 1_000_000
_RECORDS: Final = 2_000_000
_VIEW_ROUNDS: Final = 3
_NATIVE: Final = 4.0
_PLAIN: Final = 0.15
_KEY_BYTES: Final = 36.0
_RECORD_BYTES: Final = 5.0
_SLOWER: Final = 20
"""In plain Python so many times fewer keys and records."""
_VALUE: Final = bytes(100)
_SECRET: Final = b"0123456789abcdef"
_CODECS: Final = {"none": 0, "lz4": 3, "zstd": 4}
_LOG: Final = LogPositions(bytes(16), 0, 0, 1 << 62, lambda _: 0)


class _Figures(NamedTuple):
    """Of one way to run it: millions of records a second and core, bytes, and milliseconds."""

    kernel: str
    codec: str
    keys: int
    filling: float
    updating: float
    table_bytes_per_key: float
    live_bytes_per_record: float
    prev_bytes_per_record: float
    changes: float
    snapshot: float
    open_ms: float
    checkpoint_ms: float
    restore_ms: float


def measure_views(
    console: Console, *, rounds: int, scale: float
) -> tuple[list[TargetOutcome], list[dict[str, object]]]:
    """Measure every kernel that there is; prints a table, and returns what is wanted and every figure."""
    found: list[_Figures] = []
    for kernel, codec, share in _cases():
        keys = max(_BATCH, int(_KEYS * scale * share))
        records = max(_BATCH, int(_RECORDS * scale * share) // _BATCH * _BATCH)
        filling, updating = _pieces(keys, keys, 0, codec, fill=True), _pieces(records, keys, keys, codec, fill=False)
        taken = [_measure(kernel, codec, keys, filling, updating) for _ in range(min(rounds, _VIEW_ROUNDS))]
        middle = [median(column) for column in zip(*(one[3:] for one in taken), strict=True)]
        found.append(_Figures(kernel.name, codec, keys, *middle))
    console.print(_table(found))
    return _of_views(found), [one._asdict() for one in found]


def _of_views(figures: Sequence[_Figures]) -> list[TargetOutcome]:
    """What is wanted of views, of uncompressed batches."""
    outcomes: list[TargetOutcome] = []
    for name, least in (("native", _NATIVE), (PLAIN.name, _PLAIN)):
        what = f"million updates/s and core of a view, kernel {name}"
        one = next((one for one in figures if one.kernel == name and one.codec == "none"), None)
        if one is None:
            outcomes.append(not_measured(what, f"at least {least:g}", "no native package"))
            continue
        met = one.updating >= least
        short = "" if met else f"{100 * (1 - one.updating / least):.0f} % short"
        measured = f"{one.updating:.2f} at {one.keys:,} keys"
        outcomes.append(TargetOutcome(what, f"at least {least:g}", measured, met, short))
    one = figures[0]
    return [
        *outcomes,
        at_most(f"memory of {one.keys:,} keys, each", one.table_bytes_per_key, _KEY_BYTES, "B"),
        at_most("a record above S0", one.prev_bytes_per_record, _RECORD_BYTES, "B"),
    ]


def _cases() -> Iterator[tuple[Kernel, str, float]]:
    if is_installed():
        for codec in _CODECS:
            yield native_kernel(), codec, 1
    try:
        from duramen.keyed.vectors import VECTORS
    except ImportError:
        pass
    else:
        yield VECTORS, "none", 1 / _SLOWER
    yield PLAIN, "none", 1 / _SLOWER


def _pieces(records: int, keys: int, first: int, codec: str, *, fill: bool) -> list[bytes]:
    """Batches with every key once, or with any of them, some at a time as a fetch has them."""
    chance = random.Random(3)
    batches = []
    for at in range(0, records, _BATCH):
        count = min(_BATCH, records - at)
        chosen = range(at, at + count) if fill else (chance.randrange(keys) for _ in range(count))
        new = [BatchInput(1, b"%016d" % key, _VALUE) for key in chosen]
        batches.append(bytes(encode(new, base_offset=first + at, codec=_CODECS[codec])))
    return [b"".join(batches[at : at + _PIECE]) for at in range(0, len(batches), _PIECE)]


def _measure(kernel: Kernel, codec: str, keys: int, filling: Sequence[bytes], updating: Sequence[bytes]) -> _Figures:
    view = KeyedView(kernel, 0, _SECRET)
    filled_s = _apply(view, filling)
    view.raise_s0(view.position)
    updated_s = _apply(view, updating)
    end, s0 = view.position, view.s0
    records = end - s0
    _, pages, page = view.prev.state()
    prev_bytes = 4 * (sum(one.records for one in pages)) + 56 * len(pages) + len(page)
    table_bytes = view.latest.size_bytes
    changes_s = _time_s(lambda: view.changes(s0, end))
    snapshot_s = _time_s(lambda: view.snapshot((s0 + end) // 2, 0, end))
    open_s = _time_s(lambda: [view.bounds.check_snapshot(end) for _ in range(1000)]) / 1000
    began_s = time.perf_counter()
    content = b"".join(checkpoint.encode(view, _LOG, 1))
    written_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    checkpoint.restore(checkpoint.decode(content), kernel, MemoryPages())
    restored_s = time.perf_counter() - began_s
    return _Figures(
        kernel.name, codec, keys, keys / filled_s / 1e6, records / updated_s / 1e6, table_bytes / keys,
        view.live.memory_bytes / end, prev_bytes / max(1, view.prev.records), records / changes_s / 1e6,
        end / snapshot_s / 1e6, open_s * 1e3, written_s * 1e3, restored_s * 1e3,
    )  # fmt: skip


def _apply(view: KeyedView, pieces: Sequence[bytes]) -> float:
    began_s = time.process_time()
    for piece in pieces:
        view.apply(piece)
    return time.process_time() - began_s


def _time_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def _table(figures: Sequence[_Figures]) -> Table:
    table = Table(title="Views of keyed streams: million records a second and core")
    for name in (
        "",
        "codec",
        "keys",
        "new keys",
        "updates",
        "B a key",
        "B a record",
        "changes",
        "snapshot",
        "ms to load",
    ):
        table.add_column(name, justify="right" if name else "left")
    for one in figures:
        table.add_row(
            one.kernel, one.codec, f"{one.keys:,}", f"{one.filling:.2f}", f"{one.updating:.2f}",
            f"{one.table_bytes_per_key:.1f}", f"{one.prev_bytes_per_record:.2f}", f"{one.changes:.0f}",
            f"{one.snapshot:.0f}", f"{one.restore_ms:.0f}",
        )  # fmt: skip
    return table
