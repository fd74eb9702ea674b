"""Loads a pipeline from a file: YAML, or Python that builds one."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from duramen.base.errors import DependencyMissing, PipelineInvalid
from duramen.spark.pipelines.definition.builder import Pipeline
from duramen.spark.pipelines.definition.model import PipelineModel, Step, Text
from duramen.spark.pipelines.definition.problems import BEGINNING, Problems, SourcePlace

__all__ = ["load"]

_MODULE: Final = "duramen_pipeline_file"
_MOST_BYTES: Final = 16 << 20


def load(path: Path, problems: Problems) -> PipelineModel | None:
    """The pipeline of a file; None if it is invalid, which `problems` then reports.

    Raises OSError, PipelineInvalid, DependencyMissing.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise PipelineInvalid(f"{path} is larger than {_MOST_BYTES >> 20} MiB: that is no pipeline")
    directory = str(path.resolve().parent)
    if path.suffix == ".py":
        return _from_python(path, directory, problems)
    if importlib.util.find_spec("yaml") is None:
        raise DependencyMissing("pipelines in YAML need PyYAML: pip install 'duramen[tables]', or pyyaml")
    from duramen.spark.pipelines.definition.parser import parse

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PipelineInvalid(f"{path} is not UTF-8 text, at byte {error.start}") from None
    declared = parse(text, directory, os.environ, problems)
    if declared is None:
        return None
    steps = tuple(_with_function(step, directory, problems) for step in declared.steps)
    return msgspec.structs.replace(declared, steps=steps)


def _from_python(path: Path, directory: str, problems: Problems) -> PipelineModel | None:
    _find_modules_in(directory)
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise PipelineInvalid(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        problems.add(SourcePlace(error.lineno or 1, error.offset or 1), f"this is not Python: {error.msg}")
        return None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the user's code raises is said with its line
        problems.add(_line_of(error, path), f"{type(error).__name__}: {_one_line(error)}")
        return None
    _travel_by_value(module)
    pipeline = getattr(module, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        problems.add(BEGINNING, "the file has no `pipeline`: pipeline = Pipeline(…) of duramen.spark.pipelines")
        return None
    return pipeline.declared()


def _with_function(step: Step, directory: str, problems: Problems) -> Step:
    """The step with its function in place of the function's name."""
    if not isinstance(step.function, Text):
        return step
    module, _, name = step.function.value.partition(":")
    if not module or not name.isidentifier():
        problems.add(step.function.place, f"python of step {step.name.value} must be module:function")
        return step
    _find_modules_in(directory)
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the user's code raises is said with its place
        problems.add(step.function.place, f"{module} cannot be imported: {type(error).__name__}: {_one_line(error)}")
        return step
    function: Callable[..., Any] | None = getattr(imported, name, None)
    if not callable(function):
        problems.add(step.function.place, f"{module} has no function {name}")
        return step
    if Path(str(getattr(imported, "__file__", ""))).is_relative_to(directory):
        _travel_by_value(imported)
    return msgspec.structs.replace(step, function=function)


def _find_modules_in(directory: str) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _travel_by_value(module: ModuleType) -> None:
    """Functions of the module are pickled by value: executors cannot import modules next to the pipeline."""
    if importlib.util.find_spec("pyspark") is not None:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _line_of(error: BaseException, path: Path) -> SourcePlace:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return SourcePlace(lines[-1] or 1, 1) if lines else BEGINNING


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
