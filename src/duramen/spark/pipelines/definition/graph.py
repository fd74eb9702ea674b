"""Dependencies among a pipeline's parts: existing names, no cycles, an order. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from duramen.base.catalogue.tables import storage_problem
from duramen.base.units import parse_ms
from duramen.spark.pipelines.definition.model import (
    STORED_FORMATS,
    PipelineModel,
    PipelineSource,
    Sink,
    SinkOption,
    Step,
    Text,
)
from duramen.spark.pipelines.definition.problems import BEGINNING, Problems, meant
from duramen.spark.pipelines.definition.references import references

__all__ = ["inputs_of", "is_name", "ordered", "streams_of"]

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SAID_ELSEWHERE: Final = {
    **dict.fromkeys(("subscribe", "subscribepattern", "assign", "topic", "path"), "its stream or table is said beside"),
    "checkpointlocation": "`--checkpoints` says where they are",
    "queryname": "a query has the name of its sink",
}
_QUERY: Final = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


def is_name(text: str) -> bool:
    """Whether a source or a step can have that name."""
    return _NAME.fullmatch(text) is not None


def inputs_of(step: Step) -> list[Text]:
    """The inputs of a step, with the place of each name."""
    if step.sql is None:
        return list(step.inputs)
    return [Text(one.name, step.sql.at(one.line, one.column)) for one in references(step.sql.value)]


def ordered(pipeline: PipelineModel, problems: Problems) -> list[Step]:
    """The steps, each after its inputs; errors in names, cycles and triggers become problems."""
    _check_names(pipeline, problems)
    _check_sinks(pipeline.sinks, problems)
    for options in (*(one.options for one in pipeline.sources), *(one.options for one in pipeline.sinks)):
        _check_options(options, problems)
    for source in pipeline.sources:
        if source.format in STORED_FORMATS:
            _check_storage(source.options, problems)
    for trigger in (pipeline.trigger, *(sink.trigger for sink in pipeline.sinks)):
        _check_trigger(trigger, problems)
    by_name = {part.name.value.lower(): part for part in _parts(pipeline)}
    names = [part.name.value for part in _parts(pipeline)]
    for step in pipeline.steps:
        for name in inputs_of(step):
            if name.value.lower() not in by_name.keys() | pipeline.broken:
                problems.add(name.place, f"there is no source or step {name.value}{meant(name.value, names)}")
    for sink in pipeline.sinks:
        if sink.input.value.lower() not in by_name.keys() | pipeline.broken:
            problems.add(
                sink.input.place, f"there is no source or step {sink.input.value}{meant(sink.input.value, names)}"
            )
    order = _sorted(pipeline.steps, problems)
    if not pipeline.broken:  # a broken step may read the rest
        _warn_unused(pipeline, problems)
    return order


def _parts(pipeline: PipelineModel) -> list[PipelineSource | Step]:
    """The parts that may be read; they share one namespace."""
    return [*pipeline.sources, *pipeline.steps]


def streams_of(pipeline: PipelineModel, name: str) -> list[PipelineSource]:
    """The streams from which a source or step takes its rows, directly or indirectly. The pipeline has no cycles."""
    for source in pipeline.sources:
        if source.name.value.lower() == name.lower():
            return [source] if source.format is None else []
    found: dict[str, PipelineSource] = {}
    for step in pipeline.steps:
        if step.name.value.lower() == name.lower():
            for input_ in inputs_of(step):
                found |= {source.name.value: source for source in streams_of(pipeline, input_.value)}
    return list(found.values())


def _check_names(pipeline: PipelineModel, problems: Problems) -> None:
    if not _QUERY.fullmatch(pipeline.name.value):
        problems.add(pipeline.name.place, f"pipeline: {pipeline.name.value!r} is no name; {_rule('and -')}")
    _check_different([part.name for part in _parts(pipeline)], _NAME, "", problems)
    _check_different([sink.name for sink in pipeline.sinks], _QUERY, "and -", problems)
    if not (pipeline.sources or pipeline.broken):
        problems.add(BEGINNING, "the pipeline has no sources")
    if not (pipeline.sinks or pipeline.broken):
        problems.add(BEGINNING, "the pipeline has no sinks")


def _rule(also: str) -> str:
    return f"a name has letters, digits, _ {also}".rstrip() + ", and begins with a letter"


def _check_different(names: Sequence[Text], right: re.Pattern[str], also: str, problems: Problems) -> None:
    seen: set[str] = set()
    for name in names:
        if not right.fullmatch(name.value):
            problems.add(name.place, f"{name.value!r} is no name; {_rule(also)}")
        # As in Spark's SQL, names are case-insensitive.
        if name.value.lower() in seen:
            problems.add(name.place, f"there is another {name.value} already")
        seen.add(name.value.lower())


def _check_sinks(sinks: Iterable[Sink], problems: Problems) -> None:
    tables: set[str] = set()
    for sink in sinks:
        if sink.kind not in ("delta", "iceberg"):
            continue
        _check_storage(sink.options, problems)
        if sink.mode is not None and sink.mode.value == "update" and not sink.keys:
            problems.add(sink.mode.place, "mode update needs keys: without them every change would be one more row")
        if sink.location.value in tables:
            problems.add(
                sink.location.place, f"two sinks write the table {sink.location.value}; a table has one writer"
            )
        tables.add(sink.location.value)


def _check_options(options: Iterable[SinkOption], problems: Problems) -> None:
    for option in options:
        said = _SAID_ELSEWHERE.get(option.name.value.lower())
        if said is not None:
            problems.add(option.name.place, f"{option.name.value} is no option of a pipeline: {said}")


def _check_storage(options: Iterable[SinkOption], problems: Problems) -> None:
    for option in options:
        problem = storage_problem(option.name.value)
        if problem is not None:
            problems.add(option.name.place, problem)


def _check_trigger(trigger: Text | None, problems: Problems) -> None:
    if trigger is None:
        return
    try:
        if parse_ms(trigger.value) < 0:
            raise ValueError("it cannot be negative")
    except ValueError as error:
        problems.add(trigger.place, f"trigger: {trigger.value!r} does not fit: {error}")


def _sorted(steps: Sequence[Step], problems: Problems) -> list[Step]:
    """Depth first; a step that is reached again while its inputs are being sorted is part of a cycle."""
    by_name = {step.name.value.lower(): step for step in steps}
    order: dict[str, Step] = {}
    for begin in by_name:
        path: list[str] = []
        waiting = [(begin, False)]
        while waiting:
            name, left = waiting.pop()
            if left:
                order[name] = by_name[path.pop()]
                continue
            if name in order:
                continue
            path.append(name)
            waiting.append((name, True))
            for input_ in inputs_of(by_name[name]):
                needed = input_.value.lower()
                if needed in path:
                    circle = " reads ".join([*(by_name[one].name.value for one in path[path.index(needed) :]), needed])
                    problems.add(input_.place, f"steps go in a circle: {circle}")
                elif needed in by_name and needed not in order:
                    waiting.append((needed, False))
    return list(order.values())


def _warn_unused(pipeline: PipelineModel, problems: Problems) -> None:
    used = {sink.input.value.lower() for sink in pipeline.sinks}
    used |= {name.value.lower() for step in pipeline.steps for name in inputs_of(step)}
    for part in _parts(pipeline):
        if part.name.value.lower() not in used:
            kind = "source" if isinstance(part, PipelineSource) else "step"
            problems.warn(part.name.place, f"nothing reads the {kind} {part.name.value}")
