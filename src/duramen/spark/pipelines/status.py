"""What an application that runs a pipeline says of itself, in a file beside the checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from duramen.base.errors import PipelineFailed
from duramen.spark.pipelines.checkpoints import Checkpoints, written_whole
from duramen.spark.pipelines.progress import Figures

__all__ = ["QueryStatus", "Status", "read_status", "write_status"]

_FILE: Final = "status.json"


class QueryStatus(msgspec.Struct, frozen=True):
    """One query: what it does, its last micro-batch, why it failed last. Times are in ms since 1970."""

    query: str
    state: str
    restarts: int
    error: str | None
    batch_at_ms: int | None
    batch: Figures | None


class Status(msgspec.Struct, frozen=True):
    """A pipeline as its application last said it; `state` is `lost` where that is gone without a word."""

    pipeline: str
    state: str
    master: str
    started_at_ms: int
    updated_at_ms: int
    queries: Sequence[QueryStatus]


def write_status(checkpoints: Checkpoints, status: Status) -> None:
    """Put it where `read_status` finds it. Raises OSError."""
    written_whole(checkpoints.directory / _FILE, msgspec.json.encode(status))


def read_status(checkpoints: Checkpoints) -> Status:
    """What the application that runs or ran says. Raises PipelineFailed where none has run, or it cannot be read."""
    file: Path = checkpoints.directory / _FILE
    try:
        status = msgspec.json.decode(file.read_bytes(), type=Status)
    except FileNotFoundError:
        raise PipelineFailed(
            f"no pipeline has run with the checkpoints {checkpoints.directory}; `--checkpoints` says where others are"
        ) from None
    except msgspec.DecodeError as error:
        raise PipelineFailed(f"{file} is no status of a pipeline: {error}") from None
    if status.state == "running" and not checkpoints.is_held():
        return msgspec.structs.replace(status, state="lost")
    return status
