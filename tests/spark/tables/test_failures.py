"""Errors of the libraries below a table: only those of the storage are called so, each other one by its own name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from tests.cli.command import run
from tests.cli.fake import FakeNode
from tests.spark.tables.filling import Job, Keyed

from duramen.base.errors import (
    BugFound,
    DependencyMissing,
    DuramenError,
    OptionInvalid,
    TableConflict,
    TableDamaged,
    TableStorageFailed,
    TableUnsupported,
)
from duramen.spark.tables.port import Declaration, Storage
from duramen.spark.tables.reader import read_file
from duramen.spark.tables.registry import open_table
from duramen.spark.tables.storage import TableLocation

Declare = Callable[..., Declaration]

LOG: dict[int, list[Keyed]] = {0: [(b"k", b'{"a": 1}')]}
STREAM: dict[str, Any] = {
    "name": "flights", "id": "00000000-0000-4000-8000-000000000001", "config": {}, "internal": False, "partitions": [],
}  # fmt: skip


def newest_metadata(declaration: Declaration) -> Path:
    """The file that says what the newest version of a table is."""
    where = Path(declaration.storage.location)
    found = where.glob("_delta_log/*.json" if declaration.format == "delta" else "metadata/*.metadata.json")
    return max(found, key=lambda file: (file.name, file.stat().st_mtime_ns))


def test_metadata_that_is_cut_off_is_damage(declare: Declare) -> None:
    job = Job.of(declare())
    job.fill(LOG)
    file = newest_metadata(job.table.declaration)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(TableDamaged) as failed:
        Job.of(declare()).table.ends()
    assert str(failed.value).startswith(f"{job.table.declaration.storage.location}: ")
    assert "\n" not in str(failed.value)


def test_a_data_file_that_is_no_parquet_is_damage(declare: Declare) -> None:
    job = Job.of(declare())
    job.fill(LOG)
    place = TableLocation(job.table.declaration.storage)
    (file,) = job.table.scan()
    Path(place.uri_of(file.path)).write_bytes(b"dear diary " * 20)
    with pytest.raises(TableDamaged, match=file.path):
        list(read_file(place, file, job.table.schema()))
    job.fill({0: LOG[0] * 2})
    with pytest.raises(TableDamaged, match=file.path):
        job.table.compact()


def test_a_data_file_that_is_gone_is_the_storage_s(declare: Declare) -> None:
    job = Job.of(declare())
    job.fill(LOG)
    place = TableLocation(job.table.declaration.storage)
    (file,) = job.table.scan()
    Path(place.uri_of(file.path)).unlink()
    with pytest.raises(TableStorageFailed, match=file.path):
        list(read_file(place, file, job.table.schema()))


def test_a_feature_that_the_library_does_not_know_is_not_the_storage_s(declare: Declare) -> None:
    declaration = declare(format="delta")
    job = Job.of(declaration)
    job.fill(LOG)
    wanted = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    newest = newest_metadata(declaration)
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text(json.dumps({"protocol": wanted}))
    with pytest.raises(TableUnsupported, match="'x' is not supported"):
        job.table.ends()


@pytest.mark.long
def test_writers_that_never_let_one_through_are_no_storage(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit of this one finds that another came first."""
    job = Job.of(declare())
    work, spans = job.plan(LOG)
    real_write: Callable[..., Any] = DeltaTable.create_write_transaction
    real_commit: Callable[..., Any] = SqlCatalog.commit_table
    where, another = job.table.declaration, Job.of(declare()).table

    def first_another(real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", real_write)
            patch.setattr(SqlCatalog, "commit_table", real_commit)
            another.commit((), ())
        return real(*given, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lambda *a, **k: first_another(real_write, *a, **k))
    monkeypatch.setattr(SqlCatalog, "commit_table", lambda *a, **k: first_another(real_commit, *a, **k))
    with pytest.raises(TableConflict, match=f"{where.storage.location}.*: others committed 20 times"):
        job.commit(work, spans, LOG)


def test_a_bug_is_called_a_bug(declare: Declare, table_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.of(declare())
    owner, name = (DeltaTable, "transaction_version") if table_format == "delta" else (SqlCatalog, "load_table")

    def broken(*_: Any) -> Any:
        raise AttributeError("'NoneType' object has no attribute 'version'")

    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(BugFound, match=f"^{job.table.declaration.storage.location}: AttributeError: 'NoneType' object"):
        job.table.ends()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"catalog.type": "sql", "catalog.uri": "nonsense"}, OptionInvalid, "Could not parse SQLAlchemy URL"),
        ({"catalog.type": "sql", "catalog.uri": "nonsense://it"}, OptionInvalid, "sqlalchemy.dialects:nonsense"),
        ({"catalog.type": "nonsense", "catalog.uri": "http://127.0.0.1:1"}, OptionInvalid, "not a valid CatalogType"),
        ({"catalog.uri": "gopher://there"}, OptionInvalid, "gopher://there"),
        ({"catalog.uri": "thrift://127.0.0.1:1"}, DependencyMissing, "pip install 'pyiceberg[hive]'"),
        (
            {"catalog.type": "sql", "catalog.uri": "sqlite:////dev/null/it"},
            TableStorageFailed,
            "unable to open database",
        ),
    ],
)
def test_a_catalog_that_cannot_be_is_named(
    tmp_path: Path, options: dict[str, str], error: type[DuramenError], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)) as failed:
        open_table(Declaration("iceberg", Storage(str(tmp_path / "t"), options), "flights", "id"))
    assert "\n" not in str(failed.value)


@pytest.mark.long
def test_table_enable_says_what_kind_of_error_it_is(tmp_path: Path) -> None:
    with FakeNode({"GET /v1/streams/flights": (200, STREAM)}) as node:
        words = ("table", "enable", "flights", "--format", "iceberg", "--location", str(tmp_path / "t"))
        ended = run(*words, "--storage", "catalog.uri=gopher://there", server=node.address)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.err.endswith("[option-invalid]\n")
