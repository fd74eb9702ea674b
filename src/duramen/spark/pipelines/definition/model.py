"""A pipeline as data: sources, steps, sinks, each name with its place in the file. Pure."""

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct

from duramen.spark.pipelines.definition.problems import BEGINNING, SourcePlace

__all__ = [
    "MODES",
    "STORED_FORMATS",
    "TABLE_FORMATS",
    "PipelineModel",
    "PipelineSource",
    "Sink",
    "SinkKind",
    "SinkOption",
    "Step",
    "Text",
    "Watermark",
]

SinkKind = Literal["stream", "delta", "iceberg", "console"]

MODES: Final = ("append", "update")
"""Spark's output modes for sinks: rows once they are final, or each time they change."""

STORED_FORMATS: Final = ("delta", "iceberg")
"""Formats whose tables may be on S3, with storage options; the others are files in a directory."""

TABLE_FORMATS: Final = (*STORED_FORMATS, "parquet", "csv", "json", "orc")


class Text(Struct, frozen=True):
    """A text of the file. `indent` is that of its lines if the file has them unchanged, below `place`."""

    value: str
    place: SourcePlace = BEGINNING
    first: SourcePlace | None = None
    indent: int | None = None

    def at(self, line: int, column: int) -> SourcePlace:
        """The place in the file of a place in this text; `line` from 1, `column` from 0, as Spark's parser counts."""
        if self.first is not None and (line == 1 or self.indent is not None):
            begins = self.first.column if line == 1 else (self.indent or 0) + 1
            return SourcePlace(self.first.line + line - 1, begins + column)
        return self.place


class SinkOption(Struct, frozen=True):
    """An option of a source or a sink."""

    name: Text
    value: Text


class Watermark(Struct, frozen=True):
    """The allowed lateness of rows: rows older than the newest `column` by more than `delay` are not waited for."""

    column: Text
    delay: Text


class PipelineSource(Struct, frozen=True):
    """Rows of a stream or a table. `format` is a table's; a stream has none, and `json` may describe its values."""

    name: Text
    location: Text
    format: str | None = None
    options: tuple[SinkOption, ...] = ()
    json: Text | None = None
    watermark: Watermark | None = None


class Step(Struct, frozen=True):
    """Rows computed from others: in SQL, or by a function that takes the DataFrames of `inputs` and returns one."""

    name: Text
    sql: Text | None = None
    function: Callable[..., Any] | Text | None = None
    inputs: tuple[Text, ...] = ()
    watermark: Watermark | None = None


class Sink(Struct, frozen=True):
    """A target of rows. With `keys`, each row replaces the table's row of the same keys."""

    name: Text
    input: Text
    kind: SinkKind
    location: Text
    options: tuple[SinkOption, ...] = ()
    json: bool = False
    key: Text | None = None
    keys: tuple[Text, ...] = ()
    sequence_by: Text | None = None
    delete_when: Text | None = None
    mode: Text | None = None
    trigger: Text | None = None
    rows: int = 20

    @property
    def output_mode(self) -> str:
        """`append` or `update`; the default for a table with keys is `update`."""
        return self.mode.value if self.mode is not None else "update" if self.keys else "append"


class PipelineModel(Struct, frozen=True):
    """A whole pipeline. `directory` is the base of its relative paths: its file's directory.

    `broken` are names, in lower case, of parts that are left out because they have problems. `may_have_brokers`: the
    file has an unknown top-level key, which may be meant to be `brokers`.
    """

    name: Text
    directory: str
    brokers: Text | None = None
    trigger: Text | None = None
    spark: tuple[SinkOption, ...] = ()
    sources: tuple[PipelineSource, ...] = ()
    steps: tuple[Step, ...] = ()
    sinks: tuple[Sink, ...] = ()
    broken: frozenset[str] = frozenset()
    may_have_brokers: bool = False
