"""`duramen table`, against a node that says over HTTP what the test wants, and against a real one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Run, run
from tests.cli.fake import Answers, FakeNode

STREAM: dict[str, Any] = {
    "name": "flights", "id": "00000000-0000-4000-8000-000000000001", "config": {}, "internal": False, "partitions": [],
}  # fmt: skip
PATH = "/v1/streams/flights"


def table(**config: str) -> dict[str, Any]:
    return STREAM | {"config": {name.replace("_", "."): value for name, value in config.items()}}


def test_enable_makes_the_table_and_declares_it(tmp_path: Path) -> None:
    told: list[Any] = []

    def patched(body: Any) -> tuple[int, object]:
        told.append(body)
        return 200, STREAM

    answers: Answers = {f"GET {PATH}": (200, STREAM), f"PATCH {PATH}": patched}
    with FakeNode(answers) as node:
        words = ("table", "enable", "flights", "--format", "delta", "--location", str(tmp_path / "t"))
        ended = run(*words, "--decode", "json", "--max-lag", "3s", server=node.address)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"Stream flights is a table at {tmp_path / 't'}; `duramen table run` fills it.\n"
    assert told[0]["config"]["table.location"] == str(tmp_path / "t")
    assert told[0]["config"]["table.max.lag.ms"] == "3s"
    assert (tmp_path / "t" / "_delta_log").is_dir()


def test_enable_takes_a_location_relative_to_where_it_is_typed(duramen_alone: Run, tmp_path: Path) -> None:
    told: list[Any] = []

    def patched(body: Any) -> tuple[int, object]:
        told.append(body)
        return 200, STREAM

    answers: Answers = {f"GET {PATH}": (200, STREAM), f"PATCH {PATH}": patched}
    with FakeNode(answers) as node:
        ended = duramen_alone(
            "table", "enable", "flights", "--format", "delta", "--location", "here", server=node.address
        )
    assert ended.code == 0
    assert told[0]["config"]["table.location"] == str(tmp_path / "here")


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--format", "iceberg", "--upsert-by", "key"), 1, "table.upsert.by is key, which needs table.format=delta"),
        (("--format", "delta", "--decode", "avro"), 1, "table.schema or table.registry.url must say"),
        (("--format", "delta", "--max-lag", "soon"), 1, "table.max.lag.ms: 'soon' does not fit"),
        (("--format", "delta", "--max-lag", "1"), 1, "table.max.lag.ms: '1' does not fit; it must be a time"),
        (
            ("--format", "delta", "--partition-by", "a b"),
            1,
            "table.partition.by: 'a b' does not fit; it must be names of",
        ),
        (("--format", "delta", "--location", ""), 1, "so table.location must say where the table lies"),
        (
            ("--format", "delta", "--decode", "json", "--registry", "http://127.0.0.1:1"),
            1,
            "table.registry.url is given, which needs table.decode=avro, and that is json",
        ),
        (
            ("--format", "delta", "--schema", __file__),
            1,
            "table.schema is given, which needs table.decode=avro, and that is none",
        ),
        (("--format", "parquet"), 2, "'parquet' is not one of"),
        (("--format", "delta", "--storage", "x"), 2, "'x' is not NAME=VALUE"),
        (
            ("--format", "delta", "--storage", "s3.endpont=x"),
            2,
            "no option s3.endpont of a table's storage; did you mean",
        ),
        (("--format", "detla"), 2, "'detla' is not one of"),
    ],
)
def test_enable_refuses_what_cannot_be_before_anything_is_asked(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    with FakeNode({}) as node:
        ended = run("table", "enable", "flights", "--location", str(tmp_path / "t"), *words, server=node.address)
        assert node.asked == []
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "t").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--schema", __file__), "the Avro schema: cannot be understood"),
        (("--registry", "nowhere"), "the schema registry 'nowhere' must be a URL"),
    ],
)
def test_enable_refuses_what_no_value_can_be_decoded_by(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    with FakeNode({f"GET {PATH}": (200, STREAM)}) as node:
        where = ("--format", "delta", "--location", str(tmp_path / "t"))
        ended = run("table", "enable", "flights", *where, "--decode", "avro", *words, server=node.address)
        assert node.asked == [f"GET {PATH}"]
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert message in ended.err
    assert not (tmp_path / "t").exists()


def test_enable_says_that_there_is_no_such_stream(duramen: Run, tmp_path: Path) -> None:
    ended = duramen("table", "enable", "nowhere", "--format", "delta", "--location", str(tmp_path / "t"))
    assert (ended.code, ended.out) == (1, "")
    assert "nowhere" in ended.err
    assert "[stream-not-found]" in ended.err
    assert not (tmp_path / "t").exists()


def test_enable_refuses_a_location_with_something_else(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "diary.txt").write_text("dear")
    with FakeNode({f"GET {PATH}": (200, STREAM)}) as node:
        ended = run(
            "table", "enable", "flights", "--format", "delta", "--location", str(tmp_path / "t"), server=node.address
        )
        assert node.asked == [f"GET {PATH}"]
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "[table-foreign]" in ended.err


@pytest.mark.long
def test_a_table_that_is_removed_before_its_first_round_is_gone_and_not_new(duramen: Run, tmp_path: Path) -> None:
    words = ("table", "enable", "removed-early", "--format", "delta", "--location", str(tmp_path / "t"))
    assert duramen("stream", "create", "removed-early", "--partitions", "2").code == 0
    assert duramen(*words).code == 0
    shutil.rmtree(tmp_path / "t")
    ended = duramen("table", "status", "removed-early")
    assert ended.code == 1
    gone = f"the table of removed-early at {tmp_path / 't'} is gone; bring it back, or begin a new one with"
    assert gone in ended.out
    assert not (tmp_path / "t").exists()
    assert duramen(*words).code == 0
    assert duramen("table", "status", "removed-early").code == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--location", "s3://lake/t", "--storage", "s3.endpoint=nonsense"), "s3.endpoint: 'nonsense' does not fit"),
        (("--location", "a%20b"), "%20 would be read as an escape"),
    ],
)
def test_enable_refuses_in_one_line_what_libraries_trip_over(
    duramen_alone: Run, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with FakeNode({f"GET {PATH}": (200, STREAM)}) as node:
        ended = duramen_alone("table", "enable", "flights", "--format", "delta", *words, server=node.address)
        assert node.asked == [f"GET {PATH}"]
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []


def test_disable_sets_back_what_was_set_and_leaves_the_files() -> None:
    told: list[Any] = []

    def patched(body: Any) -> tuple[int, object]:
        told.append(body)
        return 200, STREAM

    there = table(table_format="delta", table_location="/lake/t", retention_ms="5")
    with FakeNode({f"GET {PATH}": (200, there), f"PATCH {PATH}": patched}) as node:
        ended = run("table", "disable", "flights", server=node.address)
    assert (ended.code, ended.out) == (0, "Stream flights is no longer a table; its files stay at /lake/t.\n")
    assert told == [{"config": {"table.format": None, "table.location": None}}]


def test_disable_says_that_there_is_no_table() -> None:
    with FakeNode({f"GET {PATH}": (200, STREAM)}) as node:
        ended = run("table", "disable", "flights", server=node.address)
    assert (ended.code, ended.out) == (1, "")
    assert "stream flights is not a table, so nothing was changed" in ended.err


def test_list_shows_tables_only() -> None:
    streams = [
        STREAM | {"name": "plain"},
        table(table_format="delta", table_location="s3://lake/t", table_decode="json"),
    ]
    with FakeNode({"GET /v1/streams": (200, {"streams": streams, "next": ""})}) as node:
        said = run("table", "list", server=node.address)
        (document,) = json.loads(run("table", "list", "--format", "json", server=node.address).out)
    assert [line.split() for line in said.out.splitlines()] == [
        ["STREAM", "FORMAT", "DECODE", "UPSERT", "BY", "MAX", "LAG", "LOCATION"],
        ["flights", "delta", "json", "none", "10", "s", "s3://lake/t"],
    ]
    assert (document["stream"], document["table.location"], document["table.max.lag.ms"]) == (
        "flights", "s3://lake/t", "10000",
    )  # fmt: skip


def test_list_says_how_to_make_one() -> None:
    with FakeNode({"GET /v1/streams": (200, {"streams": [STREAM], "next": ""})}) as node:
        ended = run("table", "list", server=node.address)
    assert (ended.code, ended.out) == (0, "")
    assert "`duramen table enable STREAM` makes it one" in ended.err


@pytest.mark.variants(1)
@pytest.mark.parametrize("command", ["run", "status"])
def test_a_stream_that_is_no_table_is_said_at_once(command: str) -> None:
    with FakeNode({f"GET {PATH}": (200, STREAM)}) as node:
        ended = run("table", command, "flights", server=node.address)
    assert (ended.code, ended.out) == (1, "")
    assert "stream flights is no table" in ended.err
    assert "[stream-no-table]" in ended.err


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keep", "1s"), "must be at least 10m"),
        (("--keep", "soon"), "for example 500, 30s or 7d"),
        (("--conf", "x"), "'x' is not NAME=VALUE"),
        (("--parallel", "0"), "0 is not in the range"),
    ],
)
def test_run_refuses_options_that_do_not_fit(words: tuple[str, ...], message: str) -> None:
    with FakeNode({}) as node:
        ended = run("table", "run", *words, server=node.address)
        assert node.asked == []
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


@pytest.mark.long
def test_run_names_brokers_that_do_not_answer_before_it_starts_spark(tmp_path: Path) -> None:
    there = table(table_format="delta", table_location=str(tmp_path / "t"))
    with FakeNode({f"GET {PATH}": (200, there)}) as node:
        ended = run("table", "run", "--bootstrap-servers", "127.0.0.1:1", "flights", server=node.address)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "no broker answered within 30 s: 127.0.0.1:1 cannot be reached" in ended.err
    assert ended.err.endswith("[server-unreachable]\n")
