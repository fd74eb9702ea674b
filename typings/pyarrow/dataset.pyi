from typing import Any

from pyarrow import Table

class Dataset:
    def to_table(self, *, filter: Any = None) -> Table: ...  # noqa: A002

def dataset(source: object) -> Dataset: ...
