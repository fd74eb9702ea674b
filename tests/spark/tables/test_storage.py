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

from duramen.base.errors import OptionInvalid, TableConflict, TableForeign, TableStorageFailed, TableUnsupported
from duramen.spark.tables.failures import one_line
from duramen.spark.tables.port import Declaration, Storage
from duramen.spark.tables.registry import open_table
from duramen.spark.tables.rounds import commit_round, translate

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


@pytest.mark.variants(2)
@pytest.mark.parametrize("name", ["a b", "100%", "ü#?x", "q?x", "c:d", "p%20q", "p%2Fq", "p%20q/t"])
def test_a_directory_may_have_any_name_or_is_refused_at_once(declare: Declare, tmp_path: Path, name: str) -> None:
    wish = declare(storage=Storage(str(tmp_path / name)))
    if wish.format == "delta" and "%2" in name:
        escape = "%2F" if "%2F" in name else "%20"
        with pytest.raises(TableUnsupported, match=f"^a Delta table cannot lie at {tmp_path}/{name}: {escape} would"):
            open_table(wish)
        assert list(tmp_path.iterdir()) == []
        return
    job, log = Job.of(wish), {0: [(b"key", b'{"a": %d}' % n) for n in range(4)]}
    job.fill(log, 2)
    job.fill(log, 4)
    assert job.table.compact().read == 2
    job.table.expire(older_than_ms=0)
    job.table.vacuum(older_than_ms=0)
    assert [row["a"] for row in rows(Job.of(wish).table)] == [0, 1, 2, 3]
    top = name.partition("/")[0]
    assert {one.name for one in tmp_path.iterdir()} <= {top, f"{top}-dead-letters", "duramen-catalog.db"}


def test_a_directory_as_a_url(declare: Declare, tmp_path: Path) -> None:
    wish = declare(storage=Storage(f"file://{tmp_path}/a%20b#c"))
    job = Job.of(wish)
    job.fill({0: [(b"key", b'{"a": 1}')]})
    assert (tmp_path / "a b#c").is_dir()
    assert [row["a"] for row in rows(Job.of(wish).table)] == [1]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("file://tmp/flights", r"names a host; a path of this machine is file:///PATH"),
        ("hdfs://tmp/flights", r"is no location for a table: give a path, or s3://BUCKET/PREFIX"),
        ("s3:///flights", r"names no bucket"),
        ("s3://a lake/flights", r"no bucket has the name 'a lake'"),
        ("s3://lake/flights#1", r"what is behind \? or # would not be in the prefix"),
    ],
)
def test_a_location_that_cannot_be(declare: Declare, location: str, message: str) -> None:
    with pytest.raises(TableUnsupported, match=message) as failed:
        open_table(declare(storage=Storage(location, {"catalog.uri": "sqlite://"})))
    assert "\n" not in str(failed.value)


ENDPOINTS = ["nonsense", "127.0.0.1:9000", "http://", "http://a b", "http://a:99999", "http://a:b", "ftp://a", "https://[::1",
             "http://u@a", "http://a/path", "::"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("s3.endpoint", one, r" does not fit; it must be a URL such as http://.*") for one in ENDPOINTS),
        ("s3.region", "eu central", " does not fit; it must be a region such as eu-central-1"),
        ("s3.access-key-id", "a\nb", " does not fit; it must be of ASCII characters, without blanks"),
        ("s3.secret-access-key", "ü", " does not fit; it must be of ASCII characters, without blanks"),
    ],
)
def test_options_of_s3_that_cannot_be(declare: Declare, name: str, value: str, message: str) -> None:
    options = {"s3.endpoint": "http://127.0.0.1:1", "catalog.uri": "sqlite://"}
    with pytest.raises(OptionInvalid, match=rf"^{name}: .*{message}$"):
        open_table(declare(storage=Storage("s3://lake/flights", {**options, name: value})))


def test_an_endpoint_of_the_environment_that_cannot_be(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    with pytest.raises(OptionInvalid, match=r"^AWS_ENDPOINT_URL: 'nonsense' does not fit; it must be a URL"):
        open_table(declare(storage=Storage("s3://lake/flights", {"catalog.uri": "sqlite://"})))


def test_errors_of_libraries_become_one_line() -> None:
    assert one_line(OSError(28, "No space left on device")) == "no space left on the device"
    assert one_line(ValueError("Generic error: No space left (os error 28)")) == "no space left on the device"
    assert one_line(ValueError("\x1b[31m↳\x1b[0m first\n\n  second\n")) == "first second"
    assert one_line(ValueError("... <Error><Code>NoSuchBucket</Code><Message>…")) == "S3 answers NoSuchBucket"
    assert one_line(ValueError("Os { code: 13, kind: PermissionDenied, message: … }")) == "permission denied"
    said = 'Could not create /lake Error: Os { code: 2, kind: NotFound, message: "No such file" }'
    assert one_line(OSError(said)) == "Could not create /lake: No such file"
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


@pytest.mark.long
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


def test_s3_as_the_environment_says(declare: Declare, on_s3: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "s3.endpoint": "AWS_ENDPOINT_URL",
        "s3.region": "AWS_REGION",
        "s3.access-key-id": "AWS_ACCESS_KEY_ID",
        "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    }
    for option, variable in names.items():
        monkeypatch.setenv(variable, on_s3.options[option])
    catalog = {name: value for name, value in on_s3.options.items() if name not in names}
    job = Job.of(declare(storage=on_s3._replace(options=catalog)))
    job.fill({0: [(b"key", b'{"a": 1}')]})
    assert [row["a"] for row in rows(job.table)] == [1]


def test_a_delta_table_on_s3_lies_where_it_is_said_to(s3: dict[str, str]) -> None:
    with pytest.raises(TableUnsupported, match="%20 would be read as an escape"):
        open_table(Declaration("delta", Storage("s3://lake/a%20b", s3), "flights", "id"))


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
