"""Declarations of tables in both formats."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duramen.spark.tables.port import Declaration, Storage

Declare = Callable[..., Declaration]


@pytest.fixture(params=["delta", "iceberg"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def declare(tmp_path: Path, table_format: str) -> Declare:
    """A table of the stream flights, with what is different about it by name."""

    def make(**changes: Any) -> Declaration:
        storage = Storage(str(tmp_path / "lake" / "flights"))
        return Declaration(table_format, storage, "flights", "id-1", decode="json")._replace(**changes)

    return make
