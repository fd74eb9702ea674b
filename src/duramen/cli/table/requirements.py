"""Checks the Python packages that tables need, and names a missing one."""

from importlib.util import find_spec

from duramen.base.errors import DependencyMissing

__all__ = ["need_tables"]


def need_tables() -> None:
    """Raise DependencyMissing where the packages of the extra `tables`, or those it stands on, are missing."""
    for package in ("pyarrow", "numpy", "deltalake"):
        if find_spec(package) is None:
            raise DependencyMissing(f"tables need {package}: pip install 'duramen[spark,tables]'")
