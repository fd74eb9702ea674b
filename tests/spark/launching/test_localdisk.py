"""Hadoop's local disk, written without programs, has the permissions that it has with them."""

import stat
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tests.spark.jvm import jvm, local_files

from duramen.spark.launching.localdisk import DISK_CLASS, quicken_local_disk


@pytest.fixture
def files(spark: SparkSession) -> Any:
    return local_files(spark)


def java_path(spark: SparkSession, path: Path) -> Any:
    return jvm(spark).org.apache.hadoop.fs.Path(str(path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.long
def test_a_session_has_it_once(spark: SparkSession, files: Any) -> None:
    raw = files.getRaw()
    assert raw.getClass().getName() == DISK_CLASS
    quicken_local_disk(spark)
    assert files.getRaw().equals(raw)


def test_a_file_is_made_with_what_the_umask_leaves(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    files.create(java_path(spark, tmp_path / "file"), True).close()
    assert mode(tmp_path / "file") == 0o644


@pytest.mark.parametrize("wanted", [0o000, 0o400, 0o640, 0o755, 0o777, 0o1777])
def test_permissions_are_set_as_a_program_would(spark: SparkSession, files: Any, tmp_path: Path, wanted: int) -> None:
    (tmp_path / "place").mkdir()
    permission = jvm(spark).org.apache.hadoop.fs.permission.FsPermission(f"{wanted:04o}")
    files.setPermission(java_path(spark, tmp_path / "place"), permission)
    assert mode(tmp_path / "place") == wanted
    (tmp_path / "place").chmod(0o755)


def test_a_file_that_is_not_there_is_an_error(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    with pytest.raises(Py4JError, match="NoSuchFileException"):
        files.setPermission(
            java_path(spark, tmp_path / "none"), jvm(spark).org.apache.hadoop.fs.permission.FsPermission("0644")
        )
