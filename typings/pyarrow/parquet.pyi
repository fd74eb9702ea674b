# What Duramen uses of pyarrow.parquet, which comes without types.
from typing import IO

from pyarrow import Table

def write_table(table: Table, where: IO[bytes], *, compression: str) -> None: ...
