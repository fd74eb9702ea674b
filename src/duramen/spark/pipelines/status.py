"""The status of a pipeline's application, in a file beside the checkpoints."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from duramen.base.errors import PipelineFailed
from duramen.spark.pipelines.checkpoints import Checkpoints, written_whole
from duramen.spark.pipelines.definition.model import PipelineModel
from duramen.spark.pipelines.progress import BatchFigures

__all__ = ["PipelineStatus", "QueryStatus", "read_status", "starting", "write_status"]

_FILE: Final = "status.json"
_AT_WORK: Final = ("starting", "running")


class QueryStatus(msgspec.Struct, frozen=True):
    """One query: its state, its last micro-batch, its present error. Times are in ms since 1970.

    `error` is None once the query makes progress; `error_id` is set for errors of ours.
    """

    query: str
    state: str
    restarts: int
    error: str | None
    batch_at_ms: int | None
    batch: BatchFigures | None
    error_id: str | None = None


class PipelineStatus(msgspec.Struct, frozen=True):
    """A pipeline according to its application's last report; `state` is `lost` if the application ended without one."""

    pipeline: str
    state: str
    master: str
    started_at_ms: int
    updated_at_ms: int
    queries: Sequence[QueryStatus]


def write_status(checkpoints: Checkpoints, status: PipelineStatus) -> None:
    """Write it for `read_status`. Raises OSError."""
    written_whole(checkpoints.directory / _FILE, msgspec.json.encode(status))


@contextlib.contextmanager
def starting(
    checkpoints: Checkpoints, pipeline: PipelineModel, master: str, is_stopped: Callable[[], bool]
) -> Iterator[None]:
    """Report the start of Spark and the checks of the pipeline, and a failure of these.

    `checkpoints` are held by the caller.
    """
    started_at_ms = _now_ms()

    def tell(state: str) -> None:
        queries = [QueryStatus(sink.name.value, state, 0, None, None, None) for sink in pipeline.sinks]
        # On a full disk the start goes on.
        with contextlib.suppress(OSError):
            write_status(
                checkpoints, PipelineStatus(pipeline.name.value, state, master, started_at_ms, _now_ms(), queries)
            )

    tell("starting")
    try:
        yield
    except BaseException:
        tell("stopped" if is_stopped() else "failed")
        raise


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_status(checkpoints: Checkpoints) -> PipelineStatus:
    """The status of the application that runs or ran last.

    Raises PipelineFailed if there is none, or it is unreadable.
    """
    file: Path = checkpoints.directory / _FILE
    try:
        status = msgspec.json.decode(file.read_bytes(), type=PipelineStatus)
    except FileNotFoundError:
        raise PipelineFailed(
            f"no pipeline has run with the checkpoints {checkpoints.directory}; `--checkpoints` says where others are"
        ) from None
    except msgspec.DecodeError as error:
        raise PipelineFailed(f"{file} is no status of a pipeline: {error}") from None
    if status.state in _AT_WORK and not checkpoints.is_held():
        return msgspec.structs.replace(status, state="lost")
    return status
