"""Spark's Python workers import the PySpark that is installed, where that is surely the right one."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duramen.spark.launching import home
from duramen.spark.launching.home import lean_home, lean_home_set


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(cache), **more}


def test_has_all_of_spark_but_pyspark(tmp_path: Path) -> None:
    home = lean_home(environment(tmp_path))
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert lean_home(environment(tmp_path, PYSPARK_PYTHON=sys.executable)) == home
    assert os.listdir(tmp_path / "duramen") == [home.name]


@pytest.mark.parametrize("given", [{"SPARK_HOME": "/opt/spark"}, {"PYSPARK_PYTHON": "/usr/bin/other-python"}])
def test_what_somebody_chose_stays(tmp_path: Path, given: dict[str, str]) -> None:
    assert lean_home(environment(tmp_path, **given)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_pyspark_that_workers_would_not_find_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = importlib.util.spec_from_file_location("pyspark", tmp_path / "pyspark" / "__init__.py")
    monkeypatch.setattr(home, "find_spec", lambda name: elsewhere if name == "pyspark" else None)
    assert lean_home(environment(tmp_path)) is None
    monkeypatch.setattr(home, "find_spec", lambda _: elsewhere)
    assert lean_home(environment(tmp_path)) is None


def test_a_cache_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert lean_home(environment(tmp_path / "file")) is None


def test_is_set_for_as_long_as_java_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with lean_home_set():
        home = os.environ["SPARK_HOME"]
    assert Path(home).parent == tmp_path / "duramen"
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with lean_home_set():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.long
def test_workers_of_a_session_have_the_installed_one(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import pyspark

        return pyspark.__file__

    (found,) = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert found == importlib.import_module("pyspark").__file__
