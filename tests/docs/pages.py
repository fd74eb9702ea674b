"""Pages of Markdown: their blocks of code, what they say will come out, and whether it did. Pure.

A block marked `console` is what a reader types (lines that begin with `$ `, and with `> ` where one goes on) and what
comes back. A block marked `python` is a program; where a block marked `text` follows, it is what the program prints.
A program that begins with a comment that is nothing but a file's name, `# test_orders.py`, is that file: it is written
down for the commands that follow.
A comment in front of a block, which readers do not see, says what differs from run to run, or why the block is not run:
`<!-- varies: times, ids -->`, `<!-- not run: needs root -->`. A block marked `sh` is never run, and says why. In what
comes out, `…` stands for anything within a line, and a line that is nothing but `…` for any lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["LANGUAGES", "Block", "Command", "blocks", "commands", "differences", "same"]

# What stands behind ``` in our pages; `console` and `python` are run.
LANGUAGES: Final = ("console", "python", "text", "json", "toml", "ini", "sh", "yaml", "")

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK: Final = re.compile(r"<!-- (varies|not run): ([^>]+) -->\s*\Z")
_FILE_NAME: Final = re.compile(r"# (\w+\.py)\n")
_ANY_LINES: Final = "…"

# What a page may say of a block that it varies: what stands for each before two texts are compared.
_VARYING: Final = {
    "times": (
        re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?|\b\d\d:\d\d:\d\d(\.\d+)?|\b1[678]\d{11}\b"),
        "TIME",
    ),
    "durations": (re.compile(r"\b\d+(\.\d+)? ?(ns|µs|ms|s)\b"), "DURATION"),
    "sizes": (re.compile(r"\b\d+(\.\d+)? (B|[kMG]i?B)(?= |$)"), "SIZE"),
    "ids": (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    "versions": (re.compile(r"\b\d+\.\d+\.\d+\b"), "VERSION"),
    "numbers": (re.compile(r"\b\d+(\.\d+)?\b"), "NUMBER"),
}


@dataclass
class Block:
    """A block of code, the line of the page on which it begins, and what the comment before it says."""

    language: str
    text: str
    line: int
    varies: list[str] = field(default_factory=list)
    not_run: str = ""

    @property
    def file_name(self) -> str:
        """The name of the file that the block is; empty where it is none."""
        found = _FILE_NAME.match(self.text) if self.language == "python" else None
        return found[1] if found else ""


@dataclass
class Command:
    """What is typed, and the lines that come back."""

    text: str
    lines: list[str]


def blocks(page: str) -> Iterator[Block]:
    """Every fenced block of a page, in order. Raises ValueError for a comment that names what nobody knows."""
    for found in _FENCE.finditer(page):
        block = Block(found[1], found[2], page.count("\n", 0, found.start()) + 1)
        if mark := _MARK.search(page, 0, found.start()):
            if mark[1] == "not run":
                block.not_run = mark[2]
            else:
                block.varies = mark[2].split(", ")
                if unknown := [one for one in block.varies if one not in _VARYING]:
                    raise ValueError(f"line {block.line}: {unknown[0]} is not among {', '.join(_VARYING)}")
        yield block


def commands(block: Block) -> list[Command]:
    """What is typed in a console block. Raises ValueError where output comes before anything is typed."""
    found: list[Command] = []
    typing = False
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
            typing = True
        elif typing and line.startswith("> "):
            found[-1].text += "\n" + line[2:]
        elif found:
            found[-1].lines.append(line)
            typing = False
        else:
            raise ValueError(f"line {block.line}: nothing is typed before {line!r}")
    return found


def same(expected: str, actual: str, varies: list[str]) -> bool:
    """Whether a line is as it was promised."""
    return _pattern(expected, varies).fullmatch(_plain(actual, varies)) is not None


def differences(expected: list[str], actual: list[str], varies: list[str]) -> str:
    """What differs between the lines promised and those that came, for people; empty where nothing does."""
    at = 0
    skipping = False
    for number, line in enumerate(expected):
        if line.strip() == _ANY_LINES:
            skipping = True
            continue
        while skipping and at < len(actual) and not same(line, actual[at], varies):
            at += 1
        skipping = False
        if at == len(actual) or not same(line, actual[at], varies):
            came = actual[at] if at < len(actual) else "nothing more"
            return f"line {number + 1}\n  promised: {line}\n  came:     {came}\nof\n" + "\n".join(actual)
        at += 1
    if at < len(actual) and not skipping:
        return f"more came than was promised: {actual[at]}\nof\n" + "\n".join(actual)
    return ""


def _plain(line: str, varies: list[str]) -> str:
    for one in varies:
        pattern, stands = _VARYING[one]
        line = pattern.sub(stands, line)
    # How wide a column is depends on what varies in it.
    return re.sub(r"\s+|-{3,}", " ", line).strip() if varies else line.rstrip()


def _pattern(expected: str, varies: list[str]) -> "re.Pattern[str]":
    parts = _plain(expected, varies).split("…")
    return re.compile(".*".join(re.escape(part) for part in parts))
