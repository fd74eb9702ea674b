"""Spark looks at SQL, schemas and sinks before anything runs; what does not fit has its line and column."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from tests.spark.pipelines.running import problems_of

from duramen.spark.pipelines.checks import plans
from duramen.spark.pipelines.definition.loader import load
from duramen.spark.pipelines.definition.problems import Problems

RIGHT = """\
pipeline: delays
brokers: 127.0.0.1:1
sources:
  flights:
    stream: flights
    options:
      startingOffsets: earliest
    json: carrier STRING, at TIMESTAMP, delay INT
    watermark: {column: at, delay: 1 hour}
  airlines: {table: airlines}
steps:
  late:
    sql: |
      SELECT f.carrier, at,
        delay
      FROM flights f JOIN airlines a ON f.carrier = a.carrier
  windows:
    sql: >-
      SELECT carrier, window.start AS at, sum(delay) AS delay
      FROM late GROUP BY carrier, window(at, '1 hour')
  doubled:
    python: steps:doubled
    from: late
sinks:
  out: {from: windows, delta: out}
  log: {from: late, stream: log, json: true, key: carrier}
  screen: {from: doubled, console: true}
"""
STEPS = """
def doubled(late):
    return late.selectExpr("carrier", "delay * 2 AS delay")

def wrong(late):
    return late.select("nothing")

def none(late):
    return None

def leaves(late):
    import sys
    sys.exit(3)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_deltalake(tmp_path / "airlines", pa.Table.from_pylist(
        [{"carrier": "UA"}], schema=pa.schema([pa.field("carrier", pa.string())])
    ))  # fmt: skip
    (tmp_path / "steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def edited(spark: SparkSession, directory: Path, *edits: tuple[str, str]) -> list[str]:
    """What is wrong after edits; `@` marks in one of them where the only problem is."""
    text = RIGHT
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    where = text.index("@") if "@" in text else None
    text = text.replace("@", "")
    (directory / "it.yaml").write_text(text)
    found = problems_of(spark, directory / "it.yaml")
    if where is not None:
        line, column = text.count("\n", 0, where) + 1, where - text.rfind("\n", 0, where)
        begins = f"it.yaml:{line}:{column}: "
        assert found
        assert found[0].startswith(begins), found
        found[0] = found[0].removeprefix(begins)
    return found


def test_a_right_one_and_its_plans(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory) == []
    problems = Problems()
    declared = load(directory / "it.yaml", problems)
    assert declared is not None
    found = plans(spark, declared, "simple", problems)
    assert list(found) == ["out", "log", "screen"]
    assert "HashAggregate" in found["out"]
    assert "carrier#" in found["log"]
    assert "AS key#" in found["log"]


def test_all_faults_are_reported_at_once(spark: SparkSession, directory: Path) -> None:
    """In the text, in names, in SQL, in a function and in a sink, and none that only follows from another."""
    said = edited(
        spark, directory,
        ("brokers: 127.0.0.1:1\n", "brokers: 127.0.0.1:1\ntriger: 10s\n"),
        ("  airlines: {table: airlines}\n", "  airlines: {table: airlines}\n  broken: {}\n"),
        ("sinks:\n", "  more: {sql: SELECT * FROM broken JOIN nowhere}\nsinks:\n"),
        ("sum(delay) AS delay", "sum(dealy) AS delay"),
        ("steps:doubled", "steps:wrong"),
        ("startingOffsets: earliest\n", "startingOffsets: earliest\n      minPartitions: none\n"),
        ("key: carrier}", "key: carier}"),
    )  # fmt: skip
    assert [one.partition(": ")[2].partition(";")[0] for one in said if "minPartitions" not in one] == [
        "the pipeline has no key triger",
        "source broken must have exactly one of stream, table",
        "there is no source or step nowhere",
    ], "what reads flights cannot be looked at before its options are right"
    said = edited(
        spark, directory,
        ("brokers: 127.0.0.1:1\n", "brokers: 127.0.0.1:1\ntriger: 10s\n"),
        ("sum(delay) AS delay", "sum(dealy) AS delay"),
        ("steps:doubled", "steps:wrong"),
        ("key: carrier}", "key: carier}"),
    )  # fmt: skip
    assert [one.split(":")[1] for one in said] == ["3", "19", "22", "27"], said


@pytest.mark.long
def test_sql(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory, ("        delay\n", "        @dealy\n"))[0].startswith(
        "A column, variable, or function parameter with name `dealy` cannot be resolved. Did you mean one of"
    )
    assert edited(spark, directory, ("SELECT f.carrier, at,", "SELECT f.carrier, at at @at,")) == [
        "Syntax error at or near 'at'."
    ]
    assert edited(spark, directory, ("f.carrier = a.carrier", "@nofunc(f.carrier) = a.carrier"))[0].startswith(
        "Cannot resolve routine `nofunc`"
    )


def test_what_streams_cannot_do_has_no_hint_that_does_not_help(spark: SparkSession, directory: Path) -> None:
    query = "GROUP BY carrier, window(at, '1 hour')"
    assert edited(spark, directory, (query, f"{query} ORDER BY 1"), ("  out: {", "  @out: {")) == [
        (
            "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated DataFrame/Dataset in"
            " Complete output mode"
        )
    ]


def test_a_type_that_a_new_table_cannot_have(spark: SparkSession, directory: Path) -> None:
    (said,) = edited(
        spark, directory, ("sum(delay) AS delay", "INTERVAL 1 DAY AS delay"), ("delta: out", "delta: @out")
    )
    assert said.startswith("a Delta table has no type for duration")


def test_a_function_that_ends_the_process(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory, ("steps:doubled", "steps:leaves"), ("  doubled:", "  @doubled:")) == [
        "step doubled: SystemExit: 3"
    ]


def test_an_option_of_storage_that_does_not_fit(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory, ("delta: out}", "delta: s3://lake/out, options: {@s3.endpoint: nonsense}}")) == [
        "s3.endpoint: 'nonsense' does not fit; it must be a URL such as http://127.0.0.1:9000"
    ]
    assert edited(
        spark, directory, ("{table: airlines}", "{table: s3://lake/airlines, options: {@s3.endpoint: nonsense}}")
    ) == ["s3.endpoint: 'nonsense' does not fit; it must be a URL such as http://127.0.0.1:9000"]


@pytest.mark.long
def test_commands_are_not_run(spark: SparkSession, directory: Path) -> None:
    query = "SELECT f.carrier, at,\n        delay\n      FROM flights f JOIN airlines a ON f.carrier = a.carrier"
    for command in (f"CREATE TABLE it_is_run AS {query}", f"INSERT INTO flights {query}", "SHOW TABLES"):
        assert edited(spark, directory, (query, command))[-1] == (
            "it.yaml:13:10: sql of a step must be a query, such as SELECT; commands are not run"
        )
    assert not spark.catalog.tableExists("it_is_run")
    assert edited(spark, directory, (query, query + ";")) == []


@pytest.mark.long
def test_options_and_schemas_of_sources(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory, ("startingOffsets: earliest", "@startingOfsets: earliest")) == [
        "there is no option startingOfsets here; did you mean startingOffsets?"
    ]
    assert edited(spark, directory, ("startingOffsets: earliest", "@startingOffsets: never"))[0].startswith(
        "startingOffsets: 'never' does not fit"
    )
    assert edited(spark, directory, ("json: carrier STRING, at", "json: carrier @STRNG, at"))[0].startswith(
        "Unsupported data type"
    )
    assert edited(spark, directory, ("column: at", "column: @when"))[0].startswith("A column, variable, or function")
    assert edited(spark, directory, ("delay: 1 hour", "delay: @1 huor")) == [
        "delay: '1 huor' does not fit; it is a time such as 10 minutes"
    ]
    assert edited(
        spark,
        directory,
        ("      startingOffsets: earliest", "      startingOffsets: earliest\n      @startingOffset: 1"),
    ) == ["there is no option startingOffset here; did you mean startingOffsets?"]
    assert edited(spark, directory, ("brokers: 127.0.0.1:1", "brokers: @localhost")) == [
        "bootstrap.servers: 'localhost' is not HOST:PORT such as 127.0.0.1:9092"
    ]
    assert edited(spark, directory, ("brokers: 127.0.0.1:1\n", ""), ("stream: flights", "stream: @flights"))[0] == (
        "brokers of the pipeline is missing: the HOST:PORT of a broker's Kafka address"
    )
    assert edited(spark, directory, ("table: airlines", "table: @airliens"))[0].startswith("there is no Delta table")
    for edit, said in {
        "table: @gs://airlines": "'gs://airlines' is no location for a table: give a path, or s3://BUCKET/PREFIX",
        "format: parquet, table: @s3://airlines": "s3://airlines is no path: files of parquet lie in a directory",
        "format: iceberg, table: @s3://a/b": "an Iceberg table at s3://a/b needs a catalog: give catalog.uri",
        "table: airlines, options: {@s3.endpont: x}": "there is no option s3.endpont of a table's storage; did you mean"
        " s3.endpoint?",
        "format: iceberg, table: @airlines": f"there is no Iceberg table {directory}/airlines in its catalog",
    }.items():
        assert edited(spark, directory, ("table: airlines", edit)) == [said]
    assert not (directory / "duramen-catalog.db").exists(), "who only looks makes no catalog"


@pytest.mark.long
def test_functions(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory, ("steps:doubled", "@steps:nothing")) == ["steps has no function nothing"]
    assert edited(spark, directory, ("steps:doubled", "@nosteps:doubled")) == [
        "nosteps cannot be imported: ModuleNotFoundError: No module named 'nosteps'"
    ]
    assert edited(spark, directory, ("  doubled:", "  @doubled:"), ("steps:doubled", "steps:none")) == [
        "step doubled must return a DataFrame; it returned NoneType"
    ]
    assert edited(spark, directory, ("  doubled:", "  @doubled:"), ("steps:doubled", "steps:wrong"))[0].startswith(
        "step doubled: AnalysisException: A column, variable, or function parameter with name `nothing`"
    )


@pytest.mark.long
def test_sinks(spark: SparkSession, directory: Path) -> None:
    assert edited(spark, directory, ("key: carrier}", "key: @carier}")) == [
        "late has no column carier; did you mean carrier?"
    ]
    assert edited(spark, directory, ("from: late, stream: log, json: true", "from: @late, stream: log")) == [
        "a column `value` is needed; there are key, carrier, at, delay; json: true makes the value of all columns"
    ]
    assert (
        edited(spark, directory, ("  log: {from: late", "  log: {from: @airlines"))
        == [
            "airlines reads no stream: a sink needs rows that come",
            "it.yaml:21:3: warning: nothing reads the step doubled",
        ][:1]
    )
    assert edited(spark, directory, ("    watermark: {column: at, delay: 1 hour}\n", ""), ("  out:", "  @out:"))[0] == (
        "Invalid streaming output mode: append. This output mode is not supported for streaming aggregations without"
        " watermark on streaming DataFrames/DataSets; say mode: update, or give the source a watermark"
    )
    assert edited(
        spark, directory,
        ("python: steps:doubled\n    from: late", "sql: SELECT carrier, 1 AS Carrier FROM late"),
        ("screen: {from: doubled, console: true}", "screen: {from: @doubled, delta: twice}"),
    ) == ["doubled has the column Carrier twice; AS renames one"]  # fmt: skip
    assert edited(spark, directory, ("delta: out", "delta: @airlines"))[0].endswith(
        "was not made by a pipeline; choose another location"
    )
    assert edited(spark, directory, ("delta: out", "delta: out, keys: at, delete_when: @gone = 1"))[0].startswith(
        "A column, variable, or function parameter with name `gone`"
    )


def test_a_table_for_which_there_is_no_place(spark: SparkSession, directory: Path) -> None:
    (directory / "a").write_text("a file")
    for sink in ("delta", "iceberg"):
        assert edited(spark, directory, ("delta: out}", f"{sink}: @a/b/out}}")) == [
            f"{directory}/a/b/out: a file is there, or on the way there, where a directory should be"
        ]


def test_a_pipeline_in_python(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "it.py"
    begin = "from duramen.spark.pipelines import Pipeline\npipeline = Pipeline('p', brokers='127.0.0.1:1')\n"
    steps = "pipeline.stream('s')\npipeline.sql('a',\n  'FROM s SELECT nothing')\npipeline.to_console('c', 'a')\n"
    file.write_text(begin + steps)
    (found,) = problems_of(spark, file)
    assert found.startswith("it.py:4:1: A column, variable, or function parameter with name `nothing`")
    file.write_text(begin + "x = 1 / 0\n")
    assert problems_of(spark, file) == ["it.py:3:1: ZeroDivisionError: division by zero"]
    file.write_text("x = = 1\n")
    assert problems_of(spark, file) == ["it.py:1:5: this is not Python: invalid syntax"]
    file.write_text("x = 1\n")
    assert problems_of(spark, file)[0].startswith("it.py:1:1: the file has no `pipeline`")
