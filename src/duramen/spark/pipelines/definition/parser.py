"""Parses a pipeline from YAML: the allowed keys of each part, and its groups of alternative keys. Pure."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import yaml

from duramen.spark.pipelines.definition.documents import DocumentReader, Section, compose
from duramen.spark.pipelines.definition.model import (
    MODES,
    TABLE_FORMATS,
    PipelineModel,
    PipelineSource,
    Sink,
    SinkKind,
    SinkOption,
    Step,
    Text,
    Watermark,
)
from duramen.spark.pipelines.definition.problems import Problems, meant

__all__ = ["parse"]

_PIPELINE: Final = ("pipeline", "brokers", "trigger", "spark", "sources", "steps", "sinks")
_SOURCE: Final = ("stream", "table", "format", "options", "json", "watermark")
_STEP: Final = ("sql", "python", "from", "watermark")
_KINDS: Final[tuple[SinkKind, ...]] = ("stream", "delta", "iceberg", "console")
_OF_KIND: Final[Mapping[SinkKind, tuple[str, ...]]] = {
    "stream": ("options", "json", "key"),
    "delta": ("options", "keys", "sequence_by", "delete_when"),
    "iceberg": ("options",),
    "console": ("rows",),
}
_SINK: Final = ("from", *_KINDS, "trigger", "mode", *(name for names in _OF_KIND.values() for name in names))
_MOST_ROWS: Final = 10_000

_T = TypeVar("_T", PipelineSource, Step, Sink)


def parse(text: str, directory: str, environment: Mapping[str, str], problems: Problems) -> PipelineModel | None:
    """The pipeline of a file, without the parts that have problems; None if it is invalid."""
    node = compose(text, problems)
    if node is None:
        return None
    return _Parser(DocumentReader(text, environment, problems)).pipeline(node, directory)


class _Parser:
    def __init__(self, reader: DocumentReader) -> None:
        self._reader = reader
        self._problems = reader.problems
        self._broken: set[str] = set()

    def pipeline(self, node: yaml.Node, directory: str) -> PipelineModel | None:
        section = Section(self._reader, node, "the pipeline", _PIPELINE)
        name = section.text("pipeline")
        if not section.is_mapping:
            return None
        if name is None:
            self._problems.add(section.place, "pipeline is missing: the pipeline's name")
            name = Text("unnamed", section.place)
        sources = self._each(section, "sources", self._source)
        steps = self._each(section, "steps", self._step)
        sinks = self._each(section, "sinks", self._sink)
        return PipelineModel(
            name, directory, section.text("brokers"), section.text("trigger"), self._options(section, "spark"),
            sources, steps, sinks, frozenset(self._broken), section.has_unknown,
        )  # fmt: skip

    def _each(self, section: Section, name: str, read: Callable[[Text, yaml.Node], _T | None]) -> tuple[_T, ...]:
        node = section.node(name)
        if node is None:
            return ()
        items = Section(self._reader, node, name).items()
        found = [(key, read(key, value)) for key, value in items]
        self._broken |= {key.value.lower() for key, one in found if one is None}
        return tuple(one for _, one in found if one is not None)

    def _options(self, section: Section, name: str) -> tuple[SinkOption, ...]:
        node = section.node(name)
        if node is None:
            return ()
        found = []
        for key, value in Section(self._reader, node, f"{name} of {section.what}").items():
            text = self._reader.text(value, key.value)
            if text is not None:
                found.append(SinkOption(key, text))
        return tuple(found)

    def _watermark(self, section: Section) -> Watermark | None:
        node = section.node("watermark")
        if node is None:
            return None
        inner = Section(self._reader, node, f"watermark of {section.what}", ("column", "delay"))
        column, delay = inner.text("column"), inner.text("delay")
        if column is None or delay is None:
            self._problems.add(inner.place, f"watermark of {section.what} must have column and delay")
            return None
        return Watermark(column, delay)

    def _exactly_one(self, section: Section, names: tuple[str, ...]) -> str | None:
        given = section.given(*names)
        if len(given) == 1:
            return given[0].value
        said = " and ".join(text.value for text in given) if given else "none"
        self._problems.add(
            given[1].place if given else section.place,
            f"{section.what} must have exactly one of {', '.join(names)}; it has {said}",
        )
        return None

    def _refuse(self, section: Section, names: tuple[str, ...], why: str) -> None:
        for name in section.given(*names):
            self._problems.add(name.place, f"{section.what} has {name.value}, {why}")

    # -- sources, steps, sinks ----------------------------------------------------------------------

    def _source(self, name: Text, node: yaml.Node) -> PipelineSource | None:
        section = Section(self._reader, node, f"source {name.value}", _SOURCE)
        kind = self._exactly_one(section, ("stream", "table"))
        location = section.text(kind) if kind else None
        format_ = section.text("format")
        if kind == "stream":
            self._refuse(section, ("format",), "which is for tables")
        elif kind == "table":
            self._refuse(section, ("json", "watermark"), "which is for streams")
            if format_ is not None and format_.value not in TABLE_FORMATS:
                self._problems.add(
                    format_.place, f"there is no format {format_.value}{meant(format_.value, TABLE_FORMATS)}"
                )
        options, json = self._options(section, "options"), section.text("json", verbatim=True)
        watermark = self._watermark(section)
        if location is None:
            return None
        table = None if kind == "stream" else "delta" if format_ is None else format_.value
        return PipelineSource(name, location, table, options, json, watermark)

    def _step(self, name: Text, node: yaml.Node) -> Step | None:
        section = Section(self._reader, node, f"step {name.value}", _STEP)
        kind = self._exactly_one(section, ("sql", "python"))
        if kind == "sql":
            self._refuse(section, ("from",), "which SQL says itself")
        elif kind == "python" and not section.given("from"):
            self._problems.add(section.place, f"{section.what} must have from: what its function is given")
        inputs, watermark = section.texts("from"), self._watermark(section)
        text = section.text(kind, verbatim=True) if kind else None
        if text is None:
            return None
        return Step(name, sql=text, watermark=watermark) if kind == "sql" else Step(
            name, function=text, inputs=inputs, watermark=watermark
        )  # fmt: skip

    def _sink(self, name: Text, node: yaml.Node) -> Sink | None:
        section = Section(self._reader, node, f"sink {name.value}", _SINK)
        kind = next((one for one in _KINDS if self._exactly_one(section, _KINDS) == one), None)
        input_ = section.text("from")
        if input_ is None and not section.given("from"):
            self._problems.add(section.place, f"{section.what} must have from: the source or step that it writes")
        if kind is not None:
            self._refuse_others(section, kind)
        location = None if kind is None else section.text(kind)
        if kind == "console" and location is not None and location.value.lower() != "true":
            self._problems.add(location.place, f"console of {section.what} must be true; without it, leave it out")
        trigger, keys = section.text("trigger"), section.texts("keys")
        sequence_by, delete_when = section.text("sequence_by"), section.text("delete_when", verbatim=True)
        if not keys:
            self._refuse(section, ("sequence_by", "delete_when"), "which needs keys")
        mode = section.text("mode")
        if mode is not None and mode.value not in MODES:
            self._problems.add(mode.place, f"there is no mode {mode.value}{meant(mode.value, MODES)}")
        rows, json, key = self._rows(section), section.flag("json"), section.text("key")
        options = self._options(section, "options")
        if kind is None or location is None or input_ is None:
            return None
        return Sink(
            name, input_, kind, location, options, json, key, keys, sequence_by, delete_when, mode, trigger, rows
        )

    def _refuse_others(self, section: Section, kind: SinkKind) -> None:
        """Refuse keys of other kinds of sinks."""
        for name in dict.fromkeys(name for names in _OF_KIND.values() for name in names):
            kinds = [one for one, names in _OF_KIND.items() if name in names]
            if kind not in kinds:
                self._refuse(section, (name,), f"which is for {' and '.join(kinds)}")

    def _rows(self, section: Section) -> int:
        text = section.text("rows")
        if text is None:
            return 20
        if text.value.isascii() and text.value.isdigit() and 1 <= int(text.value) <= _MOST_ROWS:
            return int(text.value)
        self._problems.add(text.place, f"rows of {section.what} must be a whole number from 1 to {_MOST_ROWS}")
        return 20
