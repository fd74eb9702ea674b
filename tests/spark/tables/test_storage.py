"""Storage that does not do its part: a disk that is full in the middle, S3 with two writers and without a bucket."""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.tables.filling import Job, Keyed, records, rows
from tests.spark.tables.s3 import s3_with_a_lake

from duramen.base.errors import TableConflict, TableForeign, TableStorageFailed, TableUnsupported
from duramen.spark.tables.opening import open_table
from duramen.spark.tables.port import Declaration, Storage
from duramen.spark.tables.rounds import commit_round, translate
from duramen.spark.tables.storage import one_line

Declare = Callable[..., Declaration]


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Writes beyond that size fail, in this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def log_of(count: int) -> dict[int, list[Keyed]]:
    return {0: [(os.urandom(16), b'{"a": %d, "b": "%s"}' % (n, os.urandom(200).hex().encode())) for n in range(count)]}


def test_a_data_file_that_cannot_be_written(declare: Declare) -> None:
    job, log = Job.of(declare()), log_of(500)
    work, spans = job.plan(log)
    with files_of_at_most(10_000), pytest.raises(TableStorageFailed) as failed:
        translate(work, spans[0], [records(0, 0, log[0])])
    assert "\n" not in str(failed.value)
    assert str(failed.value).startswith(job.table.declaration.storage.location)
    assert job.table.ends() == {}
    job.fill(log)
    assert len(rows(job.table)) == 500


def test_a_commit_that_cannot_be_written(declare: Declare) -> None:
    job, log = Job.of(declare()), log_of(20)
    job.fill(log, 10)
    before = rows(job.table)
    work, spans = job.plan(log)
    written = translate(work, spans[0], [records(0, 10, log[0][10:])])
    with files_of_at_most(100), pytest.raises(TableStorageFailed) as failed:
        commit_round(job.table, None, work, [written], spans)
    assert "\n" not in str(failed.value)
    assert (job.table.ends(), rows(job.table)) == ({0: 10}, before)
    assert commit_round(job.table, job.dead, work, [written], spans)
    assert [row["_offset"] for row in rows(Job.of(declare()).table)] == list(range(20))


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_that_may_not_be_written(declare: Declare, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir(mode=0o500)
    with pytest.raises(TableStorageFailed):
        open_table(declare())


@pytest.mark.parametrize("below", ["", "/flights"])
def test_a_file_where_a_directory_should_be(declare: Declare, tmp_path: Path, below: str) -> None:
    (tmp_path / "lake").write_text("none")
    where = f"{tmp_path}/lake{below}"
    with pytest.raises(TableStorageFailed) as failed:
        open_table(declare(storage=Storage(where)))
    assert str(failed.value) == f"{where}: a file is there, or on the way there, where a directory should be"


@pytest.mark.parametrize("deep", ["flights/sub", "flights/more/sub"])
def test_a_table_is_not_made_inside_of_another(declare: Declare, tmp_path: Path, deep: str) -> None:
    outer, inner = tmp_path / "flights", tmp_path / deep
    open_table(declare(storage=Storage(str(outer))))
    with pytest.raises(TableForeign, match=f"^{inner} lies in the table at {outer}, which would remove its files"):
        open_table(declare(storage=Storage(str(inner)), stream="other", stream_id="other"))
    assert not inner.exists()


def test_errors_of_libraries_become_one_line() -> None:
    assert one_line(OSError(28, "No space left on device")) == "no space left on the device"
    assert one_line(ValueError("Generic error: No space left (os error 28)")) == "no space left on the device"
    assert one_line(ValueError("\x1b[31m↳\x1b[0m first\n\n  second\n")) == "first second"
    assert one_line(ValueError("... <Error><Code>NoSuchBucket</Code><Message>…")) == "S3 answers NoSuchBucket"
    assert one_line(ValueError("Os { code: 13, kind: PermissionDenied, message: … }")) == "permission denied"
    assert one_line(ValueError("(sqlite3.E) no (Background on this error at: https://a/b)")) == "no"
    assert one_line(ValueError("Json error: cut off\n   0: <unknown>\n   1: start_thread\n")) == "Json error: cut off"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("x" * 10_000))) < 400


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_with_a_lake() as options:
        yield options


@pytest.fixture
def on_s3(s3: dict[str, str], table_format: str, tmp_path: Path) -> Storage:
    catalog = (
        {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"} if table_format == "iceberg" else {}
    )
    return Storage(f"s3://lake/{table_format}/{tmp_path.name}/flights", s3 | catalog)


def test_of_two_writers_on_s3_each_time_one_wins(declare: Declare, on_s3: Storage) -> None:
    log = {0: [(b"key", b'{"a": %d}' % n) for n in range(10)]}
    jobs = [Job.of(declare(storage=on_s3)) for _ in range(2)]
    both_ready = threading.Barrier(2)
    lost: list[str] = []

    def work(job: Job) -> None:
        for _ in range(5):
            plan, spans = job.plan(log, 2)
            both_ready.wait()
            try:
                assert job.commit(plan, spans, log)
            except TableConflict as error:
                lost.append(str(error))
            both_ready.wait()

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 5
    assert [row["a"] for row in rows(jobs[0].table)] == list(range(10))
    jobs[0].table.compact()
    assert [row["a"] for row in rows(jobs[1].table)] == list(range(10))


def test_a_bucket_that_is_not_there(declare: Declare, on_s3: Storage) -> None:
    with pytest.raises(TableStorageFailed, match=r"s3://nothing/flights: .*(NoSuchBucket|NO_SUCH_BUCKET)") as failed:
        open_table(declare(storage=on_s3._replace(location="s3://nothing/flights")))
    assert "\n" not in str(failed.value)


def test_iceberg_on_s3_needs_a_catalog(s3: dict[str, str]) -> None:
    with pytest.raises(TableUnsupported, match=r"needs a catalog: give catalog\.uri"):
        open_table(Declaration("iceberg", Storage("s3://lake/flights", s3), "flights", "id"))


def test_iceberg_is_not_upserted(tmp_path: Path) -> None:
    with pytest.raises(TableUnsupported, match="take the format delta"):
        open_table(Declaration("iceberg", Storage(str(tmp_path / "flights")), "flights", "id", upsert=True))
