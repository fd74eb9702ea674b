"""`tools/compiled.py`: what mypyc is given means what the sources mean."""

import ast
import importlib.util
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

FIELDS = '''"""A module."""
from typing import NamedTuple

class Place(NamedTuple):
    name: str | None
    row: "int"
    parts: tuple[
        int | bytes, ...
    ] | list[float | None] = ()  # type: ignore[assignment]
    """What `ö` has."""

def known(name, *others):
    return name in ("first", *others)
'''
SHOP = "import msgspec\nclass Shop(msgspec.Struct, frozen=True):\n    name: str\n"
CAUSE = "from enum import Enum\nclass Cause(Enum):\n    ONE = 1\n    def __init__(self, code: int) -> None: ...\n"
ROLE = "from enum import Enum\nclass Role(Enum):\n    LEADER = 1\n"


@pytest.fixture(scope="module")
def tool() -> Any:
    """The tool as a module."""
    return _loaded("compiled", ROOT / "tools" / "compiled.py")


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # types given as text are looked up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def both(tool: Any, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """`FIELDS` as it is and as it is compiled."""
    sources = {"fields_before": FIELDS, "fields_after": tool.rewritten(FIELDS)}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    before, after = (_loaded(name, tmp_path / f"{name}.py") for name in sources)
    yield before, after
    for name in sources:
        del sys.modules[name]


def test_named_tuples_keep_their_types_as_text(both: tuple[Any, Any]) -> None:
    before, after = both
    assert typing.get_type_hints(after.Place) == typing.get_type_hints(before.Place)
    assert all(isinstance(kept, typing.ForwardRef) for kept in after.Place.__annotations__.values())
    assert after.Place("a", 1) == before.Place("a", 1)
    assert after.__doc__ == before.__doc__
    assert "# type: ignore[assignment]" in Path(after.__file__).read_text()


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_what_a_tuple_with_others_contains_stays(both: tuple[Any, Any], name: str) -> None:
    before, after = both
    assert after.known(name, "second") == before.known(name, "second")
    assert "list((" in Path(after.__file__).read_text()


def test_what_loses_its_meaning_is_not_compiled(tool: Any) -> None:
    compiled = [tool.is_compilable(ast.parse(source)) for source in (FIELDS, SHOP, CAUSE, ROLE)]
    assert compiled == [True, False, False, True]


@pytest.mark.long
def test_all_that_decides_is_compiled(tool: Any) -> None:
    used = tool.used()
    assert {"duramen/replication/machine.py", "duramen/raft/machine.py"} < set(used)
    assert not any(name.endswith("__main__.py") for name in used)
    sources = {name: (ROOT / "src" / name).read_text() for name in used}
    left = [name for name, source in sources.items() if not tool.is_compilable(ast.parse(source))]
    assert len(left) < len(used) / 10
    for name in set(used) - set(left):
        compile(tool.rewritten(sources[name]), name, "exec")
