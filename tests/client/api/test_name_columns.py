"""Topics are created from Arrow data, of whatever kind it is."""

import sys
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.client.api.conftest import Face

from duramen import errors


class Frame:
    """A data frame, or a column of one, of another library."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._content.__arrow_c_stream__(requested_schema)


TABLE = pa.table({"id": [1, 2, 3], "name": ["a", None, "b"]})
COLUMN = TABLE.column("name")
ONE = pa.table({"topic": ["x"]})
KINDS = {
    "table": TABLE,
    "batch": TABLE.to_batches()[0],
    "reader": TABLE.to_reader(),
    "column": COLUMN,
    "array": COLUMN.chunk(0),
    "frame": Frame(TABLE),
    "series": Frame(COLUMN),
}


@pytest.fixture
def namespace(face: Face) -> str:
    tenant = f"t-{uuid4().hex[:12]}"
    face.inventory("create_tenants", [tenant])
    face.inventory("create_namespaces", tenant, ["dev"])
    return f"{tenant}/dev"


def test_arrow_data_has_names(face: Face, namespace: str) -> None:
    for kind, names in KINDS.items():
        made = face.inventory("create_topics", namespace, TABLE.to_reader() if kind == "reader" else names)
        assert (kind, made.created + made.existing, [*made.failed]) == (kind, 2, ["row 2"])
    for wrong in (pa.array([1]), pa.table({"a": ["x"], "b": ["y"]}), Frame(pa.table({"name": [1.5]})), ONE):
        with pytest.raises(errors.RequestInvalid, match=r"^names is str, or Arrow data .*$"):
            face.inventory("create_topics", namespace, wrong)
    with pytest.raises(errors.RequestInvalid, match="the columns are topic"):
        face.inventory("create_topics", namespace, ONE)
    cast: Any = pc.cast  # type: ignore[attr-defined]
    bytes_ = cast(pa.array([b"\xff"]), pa.string(), safe=False)
    with pytest.raises(errors.RequestInvalid, match="a name after row 0 is not UTF-8"):
        face.inventory("create_topics", namespace, bytes_)


def test_arrow_data_needs_pyarrow(face: Face, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(errors.DependencyMissing, match=r"pip install 'duramen\[spark\]'"):
        face.inventory("create_topics", namespace, TABLE)
