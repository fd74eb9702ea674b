"""Rows of a Delta table take each other's place by their keys."""

from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.spark.pipelines.merge import Upsert, merge

KEYED = pa.schema(
    [
        pa.field("Key A", pa.string()),
        pa.field("b", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("value", pa.string()),
    ]
)
CHANGE = st.tuples(st.integers(0, 9), st.sampled_from(["x", "y"]), st.booleans())


def rows_of(location: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(location).to_pyarrow_table().to_pylist()
    return found


@settings(max_examples=examples(20))
@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "'\"`", None]), CHANGE, max_size=4), max_size=4), st.booleans()
)
def test_rows_take_each_others_place(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str | None, tuple[int, str, bool]]], in_sequence: bool
) -> None:
    location = str(tmp_path_factory.mktemp("merged"))
    DeltaTable.create(location, KEYED)
    model: dict[str | None, tuple[int, str]] = {}
    upsert = Upsert(["Key A", "b"], "seq" if in_sequence else None, "deleted")
    for batch in batches:
        rows = [
            {"Key A": key, "b": 1, "seq": seq, "value": value, "__deleted": deleted}
            for key, (seq, value, deleted) in batch.items()
        ]
        table = pa.Table.from_pylist(rows, schema=KEYED.append(pa.field("__deleted", pa.bool_())))
        merge(DeltaTable(location), table, KEYED.names, upsert, CommitProperties())
        for key, (seq, value, deleted) in batch.items():
            if in_sequence and key in model and seq < model[key][0]:
                continue
            if deleted:
                model.pop(key, None)
            else:
                model[key] = (seq, value)
        found = {row["Key A"]: (row["seq"], row["value"]) for row in rows_of(location)}
        assert found == model
        assert len(rows_of(location)) == len(model)
