"""Packages that carry no types, imported as `Any`: so the checks stay strict and no module is exempt from them."""

import warnings
from importlib import import_module
from typing import Any

__all__ = ["untyped"]


def untyped(module: str) -> Any:
    """The module of that dotted name; what it does that its own dependencies deprecate is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module(module)
