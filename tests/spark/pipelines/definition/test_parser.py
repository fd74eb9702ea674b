"""A file of YAML becomes a pipeline, or problems with the line and column of each."""

import json

from hypothesis import given
from hypothesis import strategies as st

from duramen.spark.pipelines.definition.graph import ordered, streams_of
from duramen.spark.pipelines.definition.model import PipelineModel
from duramen.spark.pipelines.definition.parser import parse
from duramen.spark.pipelines.definition.problems import Problems, SourcePlace

RIGHT = """\
pipeline: delays
brokers: ${BROKERS:-127.0.0.1:9092}
sources:
  flights:
    stream: flights
    options: {startingOffsets: earliest, maxOffsetsPerTrigger: 5}
    json: carrier STRING
    watermark: {column: at, delay: 1 hour}
  airlines: {table: airlines.csv, format: csv}
steps:
  third: {sql: SELECT * FROM second}
  second:
    sql: |

      SELECT *
        FROM first
  first: {sql: "SELECT * FROM flights JOIN airlines"}
sinks:
  out: {from: third, delta: tables/out, keys: [a, b], sequence_by: at, delete_when: op = 'd'}
  log: {from: second, stream: log, json: true, key: a}
  screen: {from: first, console: true, rows: 5, trigger: 10s}
"""


def parsed(text: str, environment: dict[str, str] | None = None) -> tuple[PipelineModel | None, list[str]]:
    problems = Problems()
    declared = parse(text, "/here", environment or {}, problems)
    if declared is not None:
        ordered(declared, problems)
    return declared, [problem.said("it") for problem in problems]


def said(text: str) -> list[str]:
    return parsed(text)[1]


def edited(old: str, new: str) -> list[str]:
    """What is said of the right one with another text in a place; `@` marks in it where the first problem is."""
    assert RIGHT.count(old) == 1
    text = RIGHT.replace(old, new.replace("@", ""))
    found = said(text)
    if "@" in new:
        line, column = place_in(RIGHT.replace(old, new), "@")
        begins = f"it:{line}:{column}: "
        assert found[0].startswith(begins), found
        found[0] = found[0].removeprefix(begins)
    return found


def place_in(text: str, fragment: str) -> SourcePlace:
    at = text.index(fragment)
    return SourcePlace(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def test_a_right_one() -> None:
    declared, problems = parsed(RIGHT, {"BROKERS": "there:1"})
    assert problems == []
    assert declared is not None
    assert declared.brokers is not None
    assert declared.brokers.value == "there:1"
    flights, airlines = declared.sources
    assert [(one.name.value, one.value.value) for one in flights.options] == [
        ("startingOffsets", "earliest"),
        ("maxOffsetsPerTrigger", "5"),
    ]
    assert (flights.format, airlines.format) == (None, "csv")
    out, log, screen = declared.sinks
    assert [key.value for key in out.keys] == ["a", "b"]
    assert (out.output_mode, log.output_mode) == ("update", "append")
    assert (log.json, screen.rows) == (True, 5)


def test_steps_come_behind_what_they_read() -> None:
    declared = parsed(RIGHT)[0]
    assert declared is not None
    assert [step.name.value for step in ordered(declared, Problems())] == ["first", "second", "third"]
    assert [source.name.value for source in streams_of(declared, "third")] == ["flights"]


def test_places_in_sql() -> None:
    declared = parsed(RIGHT)[0]
    assert declared is not None
    third, second, first = (step.sql for step in declared.steps)
    assert second is not None
    assert third is not None
    assert first is not None
    assert second.at(3, 7) == place_in(RIGHT, "first\n  first")
    assert third.at(1, 14) == place_in(RIGHT, "second}")
    assert first.at(1, 14) == place_in(RIGHT, "flights JOIN")


def test_what_is_unknown_gets_the_nearest_right_one() -> None:
    assert edited("brokers:", "@borkers:") == ["the pipeline has no key borkers; did you mean brokers?"]
    assert edited("    json: carrier", "    @jsn: carrier") == ["source flights has no key jsn; did you mean json?"]
    assert edited("format: csv", "format: @cvs") == ["there is no format cvs; did you mean csv?"]
    assert edited("FROM first\n", "FROM @frist\n")[0] == "there is no source or step frist; did you mean first?"
    assert edited("rows: 5", "mode: @apend") == ["there is no mode apend; did you mean append?"]
    assert edited("from: third", "from: thrid") == [
        "it:11:3: warning: nothing reads the step third",
        "it:19:15: there is no source or step thrid; did you mean third?",
    ]


def test_exactly_one_of_some() -> None:
    assert edited("delta: tables/out", "delta: tables/out, @console: true") == [
        "sink out must have exactly one of stream, delta, iceberg, console; it has delta and console"
    ]
    assert edited("{sql: SELECT * FROM second}", "@{}") == [
        "step third must have exactly one of sql, python; it has none"
    ]
    assert edited("stream: flights\n", "stream: flights\n    @format: csv\n") == [
        "source flights has format, which is for tables"
    ]
    assert edited("json: true, key: a", "json: true, @keys: a") == ["sink log has keys, which is for delta"]
    assert edited("delta: tables/out", "delta: tables/out, @rows: 3") == ["sink out has rows, which is for console"]
    assert edited("keys: [a, b], sequence_by: at, delete_when: op = 'd'", "@sequence_by: at") == [
        "sink out has sequence_by, which needs keys"
    ]


def test_what_is_said_elsewhere() -> None:
    assert edited("{startingOffsets: earliest, ", "{@Subscribe: x, ") == [
        "Subscribe is no option of a pipeline: its stream or table is said beside"
    ]
    assert edited("console: true", "console: @false") == [
        "console of sink screen must be true; without it, leave it out"
    ]


def test_circles() -> None:
    assert edited("FROM flights JOIN airlines", "FROM flights JOIN airlines JOIN @third") == [
        "steps go in a circle: third reads second reads first reads third"
    ]
    assert edited("SELECT * FROM second", "SELECT * FROM @Third")[0] == "steps go in a circle: third reads third"


def test_names() -> None:
    assert "it:17:3: there is another SECOND already" in edited("  first: {", "  SECOND: {")
    assert edited("  third:", "  @thi rd:")[0] == (
        "'thi rd' is no name; a name has letters, digits, _, and begins with a letter"
    )
    assert edited("  airlines: {", "  @flights: {")[0] == "sources has flights twice"


def test_a_trigger_and_rows() -> None:
    assert edited("trigger: 10s", "trigger: @soon")[0].startswith("trigger: 'soon' does not fit: ")
    assert edited("trigger: 10s", "trigger: @-5s") == ["trigger: '-5s' does not fit: it cannot be negative"]
    assert edited("rows: 5", "rows: @0") == ["rows of sink screen must be a whole number from 1 to 10000"]


def test_what_is_not_used_is_odd_only() -> None:
    declared, problems = parsed(RIGHT.replace("  airlines: {", "  more: {stream: more}\n  airlines: {"))
    assert declared is not None
    assert problems == ["it:9:3: warning: nothing reads the source more"]


def test_no_pipeline_at_all() -> None:
    assert said("") == ["it:1:1: the file is empty"]
    assert said("- a\n- b\n")[0].startswith("it:1:1: the pipeline must be a mapping with pipeline, brokers,")
    assert said("pipeline: [\n")[0].startswith("it:2:1: this is not YAML: ")
    assert said("pipeline: {a: b\nc: d\n")[0].endswith("but got ':'; that begins in line 1")
    assert said("a:\n\tb: c\n")[0].endswith("; lines are indented with spaces, not with tabs")
    assert edited("brokers: ", "brokers ")[0].endswith("; does the line before lack its colon?")
    assert edited("    json: carrier", "    json: a: carrier")[0].endswith(
        "; does the line before lack its colon, or this text its quotes?"
    )
    assert edited("    json: carrier", "   @json: carrier")[0].endswith(
        "; this line is not indented as those that it belongs to"
    )
    assert said("pipeline: x\n") == ["it:1:1: the pipeline has no sinks", "it:1:1: the pipeline has no sources"]
    assert said("brokers: x\n")[0] == "it:1:1: pipeline is missing: the pipeline's name"
    assert said("a: &a [*a]\n") != []
    assert said("x: " + "[" * 5000) != []


def test_variables() -> None:
    assert edited("${BROKERS:-127.0.0.1:9092}", "@${BROKERS}") == [
        "the environment has no BROKERS; ${BROKERS:-VALUE} has a value where there is none"
    ]
    declared = parsed(RIGHT.replace("127.0.0.1:9092}", "}$${HOME}"))[0]
    assert declared is not None
    assert declared.brokers is not None
    assert declared.brokers.value == "${HOME}"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["flights", "a", "SELECT 1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pipeline", "sources", "steps", "sinks", "stream", "sql", "from", "delta", "x", "keys"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(VALUES)
def test_any_document_is_a_pipeline_or_has_problems(document: object) -> None:
    text = json.dumps(document)
    declared, problems = parsed(text)
    assert declared is not None or problems
    lines = text.count("\n") + 1
    assert all(1 <= int(problem.split(":")[1]) <= lines for problem in problems)


@given(st.text(max_size=60))
def test_any_text_is_a_pipeline_or_has_problems(text: str) -> None:
    declared, problems = parsed(text)
    assert declared is not None or problems
