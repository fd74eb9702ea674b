"""A pipeline's checkpoint directory: one subdirectory per query, and a note of that query's definition.

Spark's own files are only read: `metadata` has the query's id, `offsets/N` the end offsets of micro-batch N.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from duramen.base.errors import CheckpointInvalid, PipelineBusy

__all__ = ["VERSION", "Checkpoints", "PipelineCheckpoint", "written_whole"]

VERSION: Final = 1
"""The version of the note; it changes when existing checkpoints could be misread."""

_LOCK: Final = "lock"
_HEADER_LINES: Final = 2  # of an entry of the offset log: its version, and the batch's metadata


class Made(msgspec.Struct, frozen=True):
    """The definition for which a query's checkpoint was created."""

    version: int
    pipeline: str
    query: str
    streams: tuple[str, ...]


class _Metadata(msgspec.Struct):
    id: str


class PipelineCheckpoint:
    """The checkpoint of one query."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def query_id(self) -> str:
        """Spark's id of the query, which is constant for a checkpoint. Raises CheckpointInvalid."""
        try:
            return msgspec.json.decode((self.directory / "metadata").read_bytes(), type=_Metadata).id
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointInvalid(
                f"{self.directory} is no checkpoint: its metadata cannot be read: {error}"
            ) from None

    def digest_of(self, batch_id: int) -> str:
        """A digest of the end offsets of a micro-batch; empty if unknown."""
        try:
            lines = (self.directory / "offsets" / str(batch_id)).read_bytes().splitlines()
        except OSError:
            return ""
        return hashlib.sha256(b"\n".join(lines[_HEADER_LINES:])).hexdigest()


class Checkpoints:
    """The checkpoints of a pipeline, on a disk that this machine, and every executor with state, has mounted."""

    def __init__(self, directory: Path, pipeline: str) -> None:
        self.directory = directory
        self._pipeline = pipeline

    def of(self, query: str) -> PipelineCheckpoint:
        """The checkpoint of a query; it need not exist yet."""
        return PipelineCheckpoint(self.directory / query)

    def claim(self, query: str, streams: Iterable[str]) -> PipelineCheckpoint:
        """The checkpoint of a query that reads these streams, with its note, created if new.

        Raises CheckpointInvalid if it was created for another definition.
        """
        made = Made(VERSION, self._pipeline, query, tuple(sorted(streams)))
        note, checkpoint = self.directory / f"{query}.json", self.of(query)
        if note.exists():
            _require_same(_read(note), made, checkpoint.directory)
        elif (checkpoint.directory / "metadata").exists():
            raise CheckpointInvalid(f"{checkpoint.directory} is a checkpoint that no pipeline made; {_ANEW}")
        else:
            written_whole(note, msgspec.json.encode(made))
        return checkpoint

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock them against other applications. Raises PipelineBusy, OSError."""
        import fcntl

        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / _LOCK).open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineBusy(
                    f"another application runs with {self.directory}; stop it, or choose other `--checkpoints`"
                ) from None
            yield

    def is_held(self) -> bool:
        """Whether an application holds the lock."""
        import fcntl

        try:
            with (self.directory / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


_ANEW: Final = "choose other `--checkpoints`, or remove it to start over"


def _read(note: Path) -> Made:
    try:
        return msgspec.json.decode(note.read_bytes(), type=Made)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointInvalid(f"{note} says what its checkpoint is for, and cannot be read: {error}") from None


def _require_same(found: Made, wanted: Made, directory: Path) -> None:
    if found.version != wanted.version:
        raise CheckpointInvalid(
            f"the checkpoint {directory} is of version {found.version}, and this is {wanted.version}; {_ANEW}"
        )
    if found.pipeline != wanted.pipeline:
        raise CheckpointInvalid(f"the checkpoint {directory} is of the pipeline {found.pipeline}; {_ANEW}")
    if found.streams != wanted.streams:
        raise CheckpointInvalid(
            f"the checkpoint {directory} is of the streams {', '.join(found.streams)}, and the query reads"
            f" {', '.join(wanted.streams)}; {_ANEW}"
        )


def written_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the new content, or the previous one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
