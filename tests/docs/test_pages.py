"""The README's tour and the examples of every page, as a reader runs them: commands, programs and what comes out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import LANGUAGES, Block, blocks, commands, differences
from tests.docs.terminal import Terminal

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
# Its programs are one that goes on: tests/spark/test_docs.py runs it.
ELSEWHERE = {ROOT / "docs" / "doors" / "spark.md"}
# Programs that not every machine has, and no package index: their blocks run where they are on the PATH.
OPTIONAL = ("nats",)
# Programs that a page needs as a whole; tools/kcat.py brings kcat where it can.
NEEDED = ("kcat", "curl")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def runnable(path: Path) -> list[Block]:
    found = blocks(path.read_text(encoding="utf-8"))
    return [block for block in found if block.language in {"console", "python", "text"} and not block.not_run]


# Written by tools/reference.py: usage lines, not examples.
GENERATED = {ROOT / "docs" / "commands.md"}
# A command in a block without a name, which nothing runs.
COMMAND = re.compile(r"^    (?:\$ .*|(?:duramen|make|pip|kcat|nats|curl|python3?) .*)$", re.MULTILINE)
# Spark takes its time to start, which the README does too; runs of pytest take theirs.
SLOW = {ROOT / "docs" / "guides" / "pyspark.md", ROOT / "docs" / "guides" / "testing.md"}
RUN = [path for path in PAGES if any(one.language != "text" for one in runnable(path)) and path not in ELSEWHERE]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.long] * (path in SLOW), id=name(path)) for path in RUN]
)
def test_what_a_page_shows_is_what_happens(path: Path, terminal: Terminal) -> None:
    found = runnable(path)
    for program_name in NEEDED:
        if any(program_name in block.text for block in found) and not terminal.has(program_name):
            pytest.skip(f"there is no {program_name} here")
    if not any("$ duramen serve" in block.text for block in found):
        terminal.serve()
    for at, block in enumerate(found):
        if block.language == "console":
            console(path, block, terminal)
        elif block.file_name:
            (terminal.home / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            following = found[at + 1] if found[at + 1 :] and found[at + 1].language == "text" else None
            program(path, block, following, terminal)


def console(path: Path, block: Block, terminal: Terminal) -> None:
    typed = commands(block)
    if any(word in OPTIONAL and not terminal.has(word) for word in (one.text.split()[0] for one in typed)):
        return
    for one in typed:
        came = terminal.type(one.text, len(one.lines))
        wrong = differences(one.lines, came, block.varies)
        assert not wrong, f"{name(path)}, line {block.line}: $ {one.text}\n{wrong}"


def program(path: Path, block: Block, promised: Block | None, terminal: Terminal) -> None:
    code, came, error = terminal.program(block.text)
    assert code == 0, f"{name(path)}, line {block.line}\n{error}"
    if promised is not None:
        wrong = differences(promised.text.splitlines(), came, promised.varies)
        assert not wrong, f"{name(path)}, line {promised.line}: {wrong}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_nothing_that_looks_like_an_example_is_left_out(path: Path) -> None:
    """Blocks say what they are, and no command stands where the tests do not see it."""
    text = path.read_text(encoding="utf-8")
    assert [block.language for block in blocks(text) if block.language not in LANGUAGES] == []
    for block in blocks(text):
        if block.language == "console":
            assert commands(block)
        assert block.language != "sh" or block.not_run, f"line {block.line}: run by nobody, without a reason"
    if path not in GENERATED:
        assert COMMAND.findall(text) == []
