"""Options and offsets as text, and that users can read about all of them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import OptionInvalid
from duramen.client import TopicPartition
from duramen.spark.options import OPTIONS, Options
from duramen.spark.read.offsets import SourceOffsets, parse_assignment, parse_offsets

DOCS = Path(__file__).parents[2] / "docs" / "doors" / "spark.md"

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
names = st.text("abc.-_", min_size=1, max_size=5)


def test_every_option_is_in_the_docs() -> None:
    rows = [line.split(" | ") for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    said = {row[0].removeprefix("| ").strip("`"): row[-1].removesuffix(" |") for row in rows}
    for option in OPTIONS.values():
        # Those without effect are named only.
        assert said.get(option.name) == option.doc or (
            option.doc.startswith("Accepted, without effect") and f"`{option.name}`" in DOCS.read_text(encoding="utf-8")
        ), option.name


@pytest.mark.parametrize("name", ["startingOffsets", "STARTINGOFFSETS", "startingoffsets"])
def test_case_does_not_matter(name: str) -> None:
    assert Options(GIVEN | {name: "latest"}, "stream").text("startingOffsets") == "latest"


def test_defaults() -> None:
    options = Options(GIVEN, "batch")
    assert options.flag("failOnDataLoss")
    assert not options.flag("includeHeaders")
    assert options.number("minPartitions") is None
    assert options.number("kafka.request.timeout.ms") == 30_000
    assert not options.given("failOnDataLoss")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        (GIVEN | {"failondataloss": "yes"}, "failOnDataLoss: 'yes' does not fit; it must be true or false"),
        (GIVEN | {"minPartitions": "\u0663"}, "it must be a whole number, at least 1"),
        (GIVEN | {"minPartitions": str(1 << 63)}, "it must be a whole number, at least 1"),
        (GIVEN | {"subscribed": "x"}, "there is no option subscribed here; did you mean subscribe?"),
        (GIVEN | {"wholly.different": "x"}, "docs/doors/spark.md lists them all"),
        (GIVEN | {"kafka.sasl.jaas.config": "x"}, "there is no encryption and no authentication yet"),
    ],
)
def test_what_does_not_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionInvalid) as caught:
        Options(given, "batch")
    assert said in str(caught.value)


@given(
    st.dictionaries(names, st.dictionaries(st.integers(0, 99), st.integers(0, 1 << 62)), max_size=4),
    st.sampled_from(["", "00000000-0000-0000-0000-0000000000ff"]),
)
def test_offsets_come_back_from_a_checkpoint(topics: dict[str, dict[int, int]], id_: str) -> None:
    offsets = SourceOffsets(
        {TopicPartition(name, index): offset for name, parts in topics.items() for index, offset in parts.items()},
        dict.fromkeys(topics, id_),
    )
    document = json.loads(json.dumps(offsets.to_json()))
    assert SourceOffsets.from_json(document) == offsets
    if topics:
        assert parse_offsets("startingOffsets", json.dumps(document)) == offsets.at


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", "1", '{"s": 1}', '{"s": [0]}', '{"s": {"x": 1}}', '{"s": {"-1": 1}}', '{"s": {"0": "1"}}',
     '{"s": {"0": true}}', '{"s": {"0": 1.5}}', '{"s": {"0": 9223372036854775808}}', '{"s": {"2147483648": 1}}'],
)  # fmt: skip
def test_offsets_that_are_none(text: str) -> None:
    with pytest.raises(OptionInvalid, match=r"startingOffsets: .* does not fit; it must be JSON such as"):
        parse_offsets("startingOffsets", text)


@pytest.mark.parametrize("text", ["", "{}", '{"s": {"0": 1}}', '{"s": ["x"]}', '{"s": [-1]}', '{"s": [0.5]}'])
def test_assignments_that_are_none(text: str) -> None:
    with pytest.raises(OptionInvalid, match=r"assign: .* does not fit; it must be JSON such as"):
        parse_assignment("assign", text)


def test_an_assignment() -> None:
    assert parse_assignment("assign", '{"b": [1, 0], "a": []}') == [TopicPartition("b", 1), TopicPartition("b", 0)]
