"""Record batches to Arrow and back: rows per second and core of the native package and of its Python twins.

Records have keys of 16 bytes and values of 100, a thousand per batch, in memory. CPU time is measured. The
implementations alternate, and the result is the median of the rounds; the CRC speed over the same bytes shows how busy
the machine was.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pyarrow as pa
from rich.table import Table

from duramen.base.ports import Buffer
from duramen.bench.commands import console_for, show
from duramen.bench.report.documents import write_document
from duramen.codec.batch import BatchInput, Headers, encode
from duramen.codec.crc import crc32c
from duramen.spark.batches import arrow, encoding, keyscan, native
from duramen.spark.columns import RECORD_COLUMNS

__all__ = ["measure_native"]

_ROWS: Final = 400_000
_BATCH: Final = 1000
_END: Final = 1 << 62
_BATCH_BYTES: Final = 128 * 1024
_LZ4: Final = 3
_LEAST_S: Final = 0.2
_HEADERS: Final[Headers] = ((b"trace", b"0123456789abcdef"), (b"kind", b"flight"))
_COLUMNS: Final = RECORD_COLUMNS[:-1]

_Decode = Callable[[bytes, int, int, Sequence[str]], Iterator[pa.RecordBatch]]
_Encode = Callable[[pa.RecordBatch, int, int, int], Sequence[tuple[Buffer, int]]]
_Scan = Callable[[bytes, int, int], Iterator[pa.RecordBatch]]


class _Case(NamedTuple):
    """What both do, and what is wanted of them in million rows a second; 0 where nothing is."""

    what: str
    wanted: float
    native: Callable[[], None]
    wanted_of_twin: float
    twin: Callable[[], None]


class _Figure(NamedTuple):
    """Million rows a second and core; None where the native package is not installed."""

    what: str
    wanted: float
    native: float | None
    wanted_of_twin: float
    twin: float


def measure_native(output: Path, *, rounds: int, scale: float, as_json: bool = False) -> None:
    """Measure both; prints a table, or JSON, writes native.json."""
    console = console_for(as_json=as_json)
    rows = max(_BATCH, int(_ROWS * scale) // _BATCH * _BATCH)
    data = {
        "fixed": _data(rows, 100, 100),
        "varying": _data(rows, 60, 140),
        "headers": _data(rows, 100, 100, headers=_HEADERS),
        "lz4": _data(rows, 100, 100, codec=_LZ4),
    }
    cases = [*_decoding(data), *_encoding(data)]
    took_s: list[list[tuple[float | None, float]]] = []
    crc_s: list[float] = []
    for _ in range(rounds):
        crc_s.append(_time_s(partial(crc32c, data["fixed"])))
        took_s.append([(_time_s(c.native) if native.is_installed() else None, _time_s(c.twin)) for c in cases])
    figures = []
    for case, times in zip(cases, zip(*took_s, strict=True), strict=True):
        ours = [one for one, _ in times if one is not None]
        quick, slow = (rows / median(ours) / 1e6 if ours else None), rows / median(one for _, one in times) / 1e6
        figures.append(_Figure(case.what, case.wanted, quick, case.wanted_of_twin, slow))
    crc_gb_s = len(data["fixed"]) / median(crc_s) / 1e9
    document = output / "native.json"
    settings = {"rounds": rounds, "rows": rows}
    found = [figure._asdict() for figure in figures]
    write_document(document, {"settings": settings, "crc_gb_s": crc_gb_s, "million_rows_s": found})
    show(console, _table(figures, crc_gb_s), document, as_json=as_json)


def _time_s(work: Callable[[], object]) -> float:
    """Of one go; as many as make a figure that what ran before counts little for."""
    began_s, took_s, goes = time.process_time(), 0.0, 0
    while took_s < _LEAST_S:
        work()
        took_s, goes = time.process_time() - began_s, goes + 1
    return took_s / goes


def _table(figures: Sequence[_Figure], crc_gb_s: float) -> Table:
    table = Table(title="Million rows a second and core")
    for name in ("", "native", "wanted", "Python", "wanted", "native : Python"):
        table.add_column(name, justify="right" if name else "left")
    for figure in figures:
        quick = figure.native
        table.add_row(
            figure.what,
            "" if quick is None else _rate(quick, figure.wanted),
            f"{figure.wanted:g}" if figure.wanted else "",
            _rate(figure.twin, figure.wanted_of_twin),
            f"{figure.wanted_of_twin:g}" if figure.wanted_of_twin else "",
            "" if quick is None else f"{quick / figure.twin:.1f}",
        )
    table.caption = f"In the same rounds CRC-32C of the same bytes ran at {crc_gb_s:.1f} GB/s."
    if not native.is_installed():
        table.caption += " The native package is not installed."
    return table


def _rate(rate: float, wanted: float) -> str:
    style = "green" if rate >= wanted else "red"
    return f"[{style}]{rate:.3g}[/]" if wanted else f"{rate:.3g}"


def _decode(way: _Decode, data: bytes, columns: Sequence[str]) -> None:
    for _ in way(data, 0, _END, columns):
        pass


def _scan(way: _Scan, data: bytes) -> None:
    for _ in way(data, 0, _END):
        pass


def _encode(way: _Encode, batches: Sequence[pa.RecordBatch], codec: int) -> None:
    for batch in batches:
        way(batch, _BATCH_BYTES, codec, 0)


def _decoding(data: Mapping[str, bytes]) -> Iterator[_Case]:
    for what, name, columns, wanted, wanted_of_twin in (
        ("decoded, fixed layout", "fixed", _COLUMNS, 30, 2),
        ("decoded, varying sizes", "varying", _COLUMNS, 30, 0),
        ("decoded, two headers", "headers", RECORD_COLUMNS, 15, 0),
        ("decoded, two headers not asked for", "headers", _COLUMNS, 0, 0),
        ("decoded, lz4", "lz4", _COLUMNS, 15, 0),
    ):
        quick = partial(_decode, native.decode, data[name], columns)
        yield _Case(what, wanted, quick, wanted_of_twin, partial(_decode, arrow.decode, data[name], columns))
    fixed = data["fixed"]
    yield _Case("keys scanned", 0, partial(_scan, native.scan_keys, fixed), 0, partial(_scan, keyscan.scan_keys, fixed))


def _encoding(data: Mapping[str, bytes]) -> Iterator[_Case]:
    for what, name, columns, codec, wanted in (
        ("encoded", "fixed", _COLUMNS, 0, 20),
        ("encoded, two headers", "headers", RECORD_COLUMNS, 0, 0),
        ("encoded, lz4", "lz4", _COLUMNS, _LZ4, 0),
    ):
        batches = [encoding.canonical(batch) for batch in arrow.decode(data[name], 0, _END, columns)]
        quick = partial(_encode, native.encode, batches, codec)
        yield _Case(what, wanted, quick, 0, partial(_encode, encoding.encode, batches, codec))


def _data(rows: int, shortest: int, longest: int, *, codec: int = 0, headers: Headers = ()) -> bytes:
    """Batches one behind the other; values are random bytes, those to be compressed JSON."""
    chance, out = random.Random(1), bytearray()
    for base in range(0, rows, _BATCH):
        new = []
        for index in range(base, base + _BATCH):
            size = chance.randint(shortest, longest)
            value = _document(chance, size) if codec else chance.randbytes(size)
            new.append(BatchInput(1_700_000_000_000 + index, b"%016d" % chance.randrange(rows), value, headers))
        out += encode(new, base_offset=base, codec=codec)
    return bytes(out)


def _document(chance: random.Random, size: int) -> bytes:
    flight = {"flight": chance.randrange(10**6), "from": chance.choice(("JFK", "LGA", "EWR")), "delay": chance.random()}
    return json.dumps(flight).encode().ljust(size)[:size]
