"""Pipelines written in Python: the same parts, declared by calls; the place of a part is the line of its call."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from duramen.spark.pipelines.definition.model import (
    PipelineModel,
    PipelineSource,
    Sink,
    SinkKind,
    SinkOption,
    Step,
    Text,
    Watermark,
)
from duramen.spark.pipelines.definition.problems import SourcePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Pipeline"]

_F = TypeVar("_F", bound="Callable[..., DataFrame]")


class Pipeline:
    """A pipeline, part by part; `duramen pipeline run` runs the one that a Python file has as `pipeline`.

    A source or a step is given by its name, or as the function of the step. Nothing is checked before `duramen
    pipeline` checks the whole.
    """

    def __init__(
        self,
        name: str,
        *,
        brokers: str | None = None,
        trigger: str | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        """`spark` is Spark's configuration, `trigger` the shortest interval between two micro-batches, such as 10s."""
        place = _caller()
        self._directory = str(Path(sys._getframe(1).f_code.co_filename).resolve().parent)
        self._name = Text(name, place)
        self._brokers = _text(brokers, place)
        self._trigger = _text(trigger, place)
        self._spark = _options(spark, place)
        self._sources: list[PipelineSource] = []
        self._steps: list[Step] = []
        self._sinks: list[Sink] = []

    def stream(
        self,
        name: str,
        stream: str | None = None,
        *,
        json: str | None = None,
        watermark: tuple[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> str:
        """A source that is a stream, by default of the same name. Returns the name.

        `json` are the columns of its values, as Spark's DDL; `watermark` is a column and the allowed lateness of its
        rows.
        """
        at = _caller()
        self._sources.append(
            PipelineSource(Text(name, at), Text(stream or name, at), None, _options(options, at), _text(json, at),
                   _watermark(watermark, at))
        )  # fmt: skip
        return name

    def table(self, name: str, path: str, *, format: str = "delta", options: Mapping[str, str] | None = None) -> str:  # noqa: A002
        """A source that is a table, as of the start of the pipeline. Returns the name.

        `path` is a directory, or s3://BUCKET/PREFIX; `options` are those of the storage (s3.endpoint …). For plain file
        formats, `path` is a directory and `options` are Spark's.
        """
        at = _caller()
        self._sources.append(PipelineSource(Text(name, at), Text(path, at), format, _options(options, at)))
        return name

    def sql(self, name: str, sql: str, *, watermark: tuple[str, str] | None = None) -> str:
        """A step in SQL. Returns the name."""
        at = _caller()
        self._steps.append(Step(Text(name, at), sql=Text(sql, at), watermark=_watermark(watermark, at)))
        return name

    def step(self, function: _F) -> _F:
        """A step as a function: its name is the step's, its parameters name the sources and steps that it receives."""
        at = SourcePlace(function.__code__.co_firstlineno, 1)
        inputs = tuple(Text(name, at) for name in inspect.signature(function).parameters)
        self._steps.append(Step(Text(function.__name__, at), function=function, inputs=inputs))
        return function

    def to_stream(
        self,
        name: str,
        source: "str | Callable[..., DataFrame]",
        stream: str,
        *,
        json: bool = False,
        key: str | None = None,
        mode: str | None = None,
        options: Mapping[str, str] | None = None,
        trigger: str | None = None,
    ) -> None:
        """A sink that is a stream. With `json`, the value has all columns; `key` is the column of the key."""
        at = _caller()
        self._add(name, source, "stream", stream, at, options=_options(options, at), json=json, key=_text(key, at),
                  mode=_text(mode, at), trigger=_text(trigger, at))  # fmt: skip

    def to_delta(
        self,
        name: str,
        source: "str | Callable[..., DataFrame]",
        path: str,
        *,
        keys: Sequence[str] = (),
        sequence_by: str | None = None,
        delete_when: str | None = None,
        mode: str | None = None,
        options: Mapping[str, str] | None = None,
        trigger: str | None = None,
    ) -> None:
        """A sink that is a Delta table; with `keys`, rows replace earlier ones of the same keys.

        `path` is a directory, or s3://BUCKET/PREFIX; `options` are those of the storage (s3.endpoint …).
        """
        at = _caller()
        self._add(name, source, "delta", path, at, options=_options(options, at),
                  keys=tuple(Text(key, at) for key in keys), sequence_by=_text(sequence_by, at),
                  delete_when=_text(delete_when, at), mode=_text(mode, at), trigger=_text(trigger, at))  # fmt: skip

    def to_iceberg(
        self,
        name: str,
        source: "str | Callable[..., DataFrame]",
        path: str,
        *,
        mode: str | None = None,
        options: Mapping[str, str] | None = None,
        trigger: str | None = None,
    ) -> None:
        """A sink that is an Iceberg table; on S3 it needs a catalog, whose address is in `options`."""
        at = _caller()
        self._add(name, source, "iceberg", path, at, options=_options(options, at), mode=_text(mode, at),
                  trigger=_text(trigger, at))  # fmt: skip

    def to_console(
        self,
        name: str,
        source: "str | Callable[..., DataFrame]",
        *,
        rows: int = 20,
        mode: str | None = None,
        trigger: str | None = None,
    ) -> None:
        """A sink that prints the first `rows` of each micro-batch."""
        at = _caller()
        self._add(name, source, "console", "console", at, rows=rows, mode=_text(mode, at),
                  trigger=_text(trigger, at))  # fmt: skip

    def declared(self) -> PipelineModel:
        """The pipeline as data."""
        return PipelineModel(
            self._name, self._directory, self._brokers, self._trigger, self._spark, tuple(self._sources),
            tuple(self._steps), tuple(self._sinks),
        )  # fmt: skip

    def _add(
        self,
        name: str,
        source: "str | Callable[..., DataFrame]",
        kind: SinkKind,
        location: str,
        at: SourcePlace,
        **more: object,
    ) -> None:
        input_ = source if isinstance(source, str) else source.__name__
        self._sinks.append(Sink(Text(name, at), Text(input_, at), kind, Text(os.fspath(location), at), **more))  # type: ignore[arg-type]


def _caller() -> SourcePlace:
    """The place of the call to our caller."""
    return SourcePlace(sys._getframe(2).f_lineno, 1)


def _text(value: str | None, at: SourcePlace) -> Text | None:
    return None if value is None else Text(value, at)


def _options(options: Mapping[str, str] | None, at: SourcePlace) -> tuple[SinkOption, ...]:
    return tuple(SinkOption(Text(name, at), Text(str(value), at)) for name, value in (options or {}).items())


def _watermark(watermark: tuple[str, str] | None, at: SourcePlace) -> Watermark | None:
    return None if watermark is None else Watermark(Text(watermark[0], at), Text(watermark[1], at))
