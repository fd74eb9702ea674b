"""docs/reliability.md names tests that exist, and every test of tests/reliability."""

import ast
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
_NAMED = re.findall(r"`(tests/[\w/]+\.py)::(?:(\w+)::)?(\w+)`", _PAGE)


def _tests(path: Path) -> set[tuple[str, str]]:
    """(class or "", name) of each test function of a file."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        found |= {
            (node.name if isinstance(node, ast.ClassDef) else "", one.name)
            for one in inside
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
        }
    return found


def test_every_test_that_is_named_exists() -> None:
    assert len(_NAMED) > 40
    for file, class_name, name in _NAMED:
        assert (class_name, name) in _tests(_ROOT / file), f"{file}::{name} is named and does not exist"


def test_every_test_of_reliability_is_named() -> None:
    named = {(file, name) for file, _, name in _NAMED}
    for path in sorted((_ROOT / "tests" / "reliability").glob("test_*.py")):
        for _, name in _tests(path):
            assert (str(path.relative_to(_ROOT)), name) in named, f"{path.name}::{name} is not in docs/reliability.md"


def test_every_row_names_a_fault_a_promise_and_a_test() -> None:
    rows = [line for line in _PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    for row in rows:
        fault, promise, test = (cell.strip() for cell in row.strip("|").split("|"))
        assert fault, row
        assert promise, row
        assert re.fullmatch(r"`tests/[\w/]+\.py::[\w:]+`", test), row
