"""Packs everything that executors need of Duramen into one archive, for `spark-submit --archives`."""

import importlib.metadata
import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import duramen
from duramen.base.errors import DependencyMissing

__all__ = ["ARROW", "Packed", "pack"]

ARROW: Final = ("numpy", "pyarrow")
"""Distributions that executors may have already."""

_NEEDED: Final = ("cramjam", "fastcrc", "msgspec")
_WELCOME: Final = ("duramen-native", "fastavro")
_PARTS: Final = ("base", "client", "codec", "spark")
_LEFT_OUT: Final = frozenset({"__pycache__", "include", "src", "tests"})
_NO_PROGRAM: Final = (".a", ".h", ".lib", ".pdb", ".pxd", ".pyc", ".pyi")
_DATE: Final = (1980, 1, 1, 0, 0, 0)  # equal files make equal archives


class Packed(NamedTuple):
    """An archive: its content, by distribution, and its size."""

    distributions: Sequence[str]
    size_bytes: int


def pack(place: Path, *, arrow: bool = True) -> Packed:
    """Write the archive atomically; without numpy and pyarrow if executors have them.

    It fits the operating system and the version of this Python. Raises DependencyMissing, OSError.
    """
    names = [*_NEEDED, *(ARROW if arrow else ())]
    found = {name: _files_of(name) for name in names}
    for name, files in found.items():
        if files is None:
            raise DependencyMissing(f"{name} is not installed, which executors need: pip install 'duramen[spark]'")
    found |= {name: files for name in _WELCOME if (files := _files_of(name)) is not None}
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}-", delete=False) as made:
        try:
            with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, path in sorted([*_own_files(), *(one for files in found.values() for one in files or ())]):
                    archive.writestr(zipfile.ZipInfo(name, _DATE), path.read_bytes(), zipfile.ZIP_DEFLATED, 1)
            made.flush()
            os.replace(made.name, place)
        except BaseException:
            os.unlink(made.name)
            raise
    place.chmod(0o644)
    return Packed(["duramen", *sorted(found)], place.stat().st_size)


def _own_files() -> Iterator[tuple[str, Path]]:
    root = Path(duramen.__file__).parent
    yield "duramen/__init__.py", root / "__init__.py"
    yield "pyspark_duramen.py", root.parent / "pyspark_duramen.py"
    for part in _PARTS:
        for path in (root / part).rglob("*"):
            if path.is_file() and _is_wanted(path.relative_to(root)):
                yield f"duramen/{path.relative_to(root).as_posix()}", path


def _files_of(distribution: str) -> list[tuple[str, Path]] | None:
    """Names and paths of a distribution's files; None if it is not installed."""
    try:
        files = importlib.metadata.distribution(distribution).files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    # Files outside the directory of packages are programs.
    return [
        (file.as_posix(), Path(str(file.locate())))
        for file in files
        if ".." not in file.parts and _is_wanted(Path(file)) and Path(str(file.locate())).is_file()
    ]


def _is_wanted(path: Path) -> bool:
    return not _LEFT_OUT.intersection(path.parts) and path.suffix not in _NO_PROGRAM
