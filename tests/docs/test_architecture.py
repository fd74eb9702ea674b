"""ARCHITECTURE.md names folders and files that exist, and every folder of the package."""

import re
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_SOURCES: Final = _ROOT / "src" / "duramen"
_PAGE: Final = (_ROOT / "ARCHITECTURE.md").read_text()


def _paths() -> list[str]:
    return re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", _PAGE)


def test_every_path_exists() -> None:
    rows = {row.group(1): row.group(0) for row in re.finditer(r"^\| (`.*?) \|.*$", _PAGE, re.MULTILINE)}
    parents = {path: first for first in rows for path in re.findall(r"`([a-z_/.]+)`", rows[first])}
    missing = []
    for path in _paths():
        above = [Path(), *(Path(found) for found in re.findall(r"`([a-z_/]+)`", parents.get(path, "")))]
        if not any((root / parent / path).exists() for root in (_SOURCES, _ROOT) for parent in above):
            missing.append(path)
    assert not missing


def test_every_room_has_a_row() -> None:
    rooms = {path.name for path in _SOURCES.iterdir() if (path / "__init__.py").exists()}
    assert rooms - {path.split("/")[0] for path in _paths()} <= {"host"}
