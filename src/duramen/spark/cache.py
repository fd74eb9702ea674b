"""The user's cache of downloads and generated files: the XDG base directory of caches."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from duramen.base.errors import DependencyMissing

__all__ = ["cache_directory", "made_once"]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Duramen's directory there; it need not exist yet. Raises DependencyMissing if this user has no home."""
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base) / "duramen"
    try:
        return Path.home() / ".cache" / "duramen"
    except RuntimeError:
        raise DependencyMissing(
            "this user has no home directory: set XDG_CACHE_HOME to a directory that can be written"
        ) from None


def made_once(place: Path, make: Callable[[Path], None]) -> Path:
    """A directory that exists, or is filled by `make` and then appears atomically. Raises OSError."""
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{place.name}-new-") as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(place)
        except OSError:
            # Another process was faster; its result is the same.
            if not place.exists():
                raise
    return place
