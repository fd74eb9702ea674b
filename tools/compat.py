"""Write docs/compatibility.md from the results of tests/compat and tests/differential; `--check` compares it.

With `--run`, or with `--run` and what pytest is to get, the tests run first and their results are recorded:
`python tools/compat.py --run tests/compat/test_go.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "tests" / "compat" / "results"
PAGE: Final = ROOT / "docs" / "compatibility.md"
DELIBERATE: Final = ROOT / "tests" / "differential" / "deliberate.json"
GENERATED: Final = "<!-- Written by `make compat` from tests/compat/results; change the source, not this page. -->"
_SIGNS: Final = {"passes": "yes", "fails": "**no**", "lacks": "-"}


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for line in lines:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
    yield ""


def count(found: Mapping[str, Any], status: str) -> int:
    """How many lines of a client have a status."""
    return sum(row["status"] == status for row in found["rows"].values())


def page(clients: Sequence[Mapping[str, Any]], shows: Mapping[str, str], notes: Sequence[str]) -> Iterator[str]:
    """The page. `shows` is what each behaviour of the list shows; what is not on the list is a client's own."""
    yield GENERATED
    yield ""
    yield "# Compatibility"
    yield ""
    yield (
        "`tests/compat` runs unmodified clients, each in a fixed version from its package registry, through one list "
        "of behaviours against a real node. `make test` runs confluent-kafka and kcat, `make test-long` all of them. "
        "`make compat` records the results and writes this page. *yes*: it passes; **no**: it fails, for the reason "
        "below; -: the client lacks the feature."
    )
    yield ""
    header = ("Client", "Version", "Language", "Passes", "Fails", "Lacks", "Run on")
    lines = [
        (
            found["client"], found["version"], found["language"],
            *(str(count(found, status)) for status in _SIGNS), found["date"],
        )
        for found in clients
    ]  # fmt: skip
    yield from table(header, lines)
    listed = [found for found in clients if set(found["rows"]) & set(shows)]
    yield "## The list"
    yield ""
    yield from table(
        ("Behaviour", "What it shows", *(found["client"] for found in listed)),
        [
            (name, text, *(_SIGNS[found["rows"][name]["status"]] if name in found["rows"] else "" for found in listed))
            for name, text in shows.items()
        ],
    )
    for found in clients:
        if own := [(name, row) for name, row in found["rows"].items() if name not in shows]:
            yield f"## {found['client']}"
            yield ""
            yield from table(("What", "Passes"), [(name, _SIGNS[row["status"]]) for name, row in own])
    yield "## Failures, and features that clients lack"
    yield ""
    reasons = [
        (found["client"], name, _SIGNS[row["status"]], row["why"])
        for found in clients
        for name, row in found["rows"].items()
        if "why" in row
    ]
    yield from table(("Client", "Behaviour", "", "Why"), reasons)
    yield from notes


def deliberate() -> Iterator[str]:
    """Responses to the same requests that differ from Apache Kafka's, and why."""
    told = json.loads(DELIBERATE.read_text(encoding="utf-8"))["differences"]
    yield "## Responses that differ from Apache Kafka's"
    yield ""
    yield (
        "`tests/differential` sends the same random requests, valid, borderline and invalid, to a Duramen node and to "
        "Apache Kafka 4.4.0 and compares the responses. These differences are deliberate; any other fails the test."
    )
    yield ""
    reasons = dict.fromkeys((one["api"].replace("|", ", "), one["reason"]) for one in told)
    yield from table(("API", "Difference"), sorted(reasons))


def written() -> str:
    """The text of the page as the results say."""
    sys.path.insert(0, str(ROOT))
    from tests.compat.behaviours import BEHAVIOURS
    from tests.compat.known import NOTES, ORDER

    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    found.sort(key=lambda one: (ORDER.index(one["client"]) if one["client"] in ORDER else len(ORDER), one["client"]))
    shows = {one.name: one.shows for one in BEHAVIOURS}
    return "\n".join([*page(found, shows, NOTES), "", *deliberate()]).rstrip() + "\n"


def main() -> int:
    """Run, write or check."""
    if "--run" in sys.argv:
        arguments = sys.argv[sys.argv.index("--run") + 1 :] or ["tests/compat"]
        environment = {**os.environ, "COMPAT_RECORD": "1"}
        subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], cwd=ROOT, env=environment, check=False)
    text = written()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in sys.argv:
        print("docs/compatibility.md is out of date: run `make reference`", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print("wrote docs/compatibility.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
