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
"""Spark's output modes that sinks have: a row once it is final, or each time that it has changed."""

STORED_FORMATS: Final = ("delta", "iceberg")
"""Formats whose tables may be on S3, with options of the storage; the others are files in a directory."""

TABLE_FORMATS: Final = (*STORED_FORMATS, "parquet", "csv", "json", "orc")


class Text(Struct, frozen=True):
    """A text of the file. `indent` is that of its lines where the file has them as they are, below `place`."""

    value: str
    place: SourcePlace = BEGINNING
    first: SourcePlace | None = None
    indent: int | None = None

    def at(self, line: int, column: int) -> SourcePlace:
        """Where in the file a place of this text is; `line` from 1, `column` from 0, as Spark's parser counts."""
        if self.first is not None and (line == 1 or self.indent is not None):
            begins = self.first.column if line == 1 else (self.indent or 0) + 1
            return SourcePlace(self.first.line + line - 1, begins + column)
        return self.place


class SinkOption(Struct, frozen=True):
    """An option of a source or a sink."""

    name: Text
    value: Text


class Watermark(Struct, frozen=True):
    """How late rows may be: what is older than the newest `column` by `delay` is not waited for."""

    column: Text
    delay: Text


class PipelineSource(Struct, frozen=True):
    """Rows that come in. `format` is that of a table; a stream has none, and `json` may say what its values hold."""

    name: Text
    location: Text
    format: str | None = None
    options: tuple[SinkOption, ...] = ()
    json: Text | None = None
    watermark: Watermark | None = None


class Step(Struct, frozen=True):
    """Rows made of others: in SQL, or by a function that takes the DataFrames of `inputs` and returns one."""

    name: Text
    sql: Text | None = None
    function: Callable[..., Any] | Text | None = None
    inputs: tuple[Text, ...] = ()
    watermark: Watermark | None = None


class Sink(Struct, frozen=True):
    """Where rows go. With `keys`, each row takes the place of the one that the table has of its keys."""

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
        """`append` or `update`; where nothing is said, a table with keys is told of every change."""
        return self.mode.value if self.mode is not None else "update" if self.keys else "append"


class PipelineModel(Struct, frozen=True):
    """A whole pipeline. `directory` is where its relative paths begin: that of its file.

    `broken` are names, in lower case, of parts of the file that are left out here because something is wrong with them.
    `may_have_brokers`: the file has a key at the top that is unknown, which may be meant to be `brokers`.
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
