"""Where things that were fetched or made once are kept for this user: the XDG base directory of caches."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Duramen's directory there; it need not exist yet."""
    base = environment.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    return Path(base) / "duramen"
