"""Detects the native package `duramen_native`, whose functions are faster versions of their Python twins."""

from functools import cache
from typing import Final

__all__ = ["is_installed"]

_INTERFACE: Final = 12
"""Which signatures we know: a package of another version is none."""


@cache
def is_installed() -> bool:
    """Whether the native package is installed in a compatible version."""
    try:
        import duramen_native
    except ImportError:
        return False
    return getattr(duramen_native, "INTERFACE", None) == _INTERFACE
