"""A running pipeline: one query per sink in one Spark application, each restarted on its own."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from duramen.base import errors
from duramen.base.errors import DuramenError, PipelineFailed
from duramen.spark.pipelines.checkpoints import Checkpoints
from duramen.spark.pipelines.definition.graph import streams_of
from duramen.spark.pipelines.definition.model import PipelineModel, Sink
from duramen.spark.pipelines.permanence import is_permanent
from duramen.spark.pipelines.progress import BatchFigures, figures_of
from duramen.spark.pipelines.reasons import reason
from duramen.spark.pipelines.sinks import start
from duramen.spark.pipelines.status import PipelineStatus, QueryStatus, write_status
from duramen.spark.pipelines.supervisor import QueryEnd, QuerySupervisor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Application", "PipelineWatcher", "Terms"]

_LOOK_MS: Final = 500
_TRIES_ONCE: Final = 3
_WAITING: Final = "Waiting for"
"""Spark's status of a query without new records."""


class Terms(NamedTuple):
    """The terms of a run. `restarts` is the largest number in a row; None: 3 with `once`, else unlimited."""

    master: str
    once: bool = False
    restarts: int | None = None


class PipelineWatcher(Protocol):
    """Receives the progress of a pipeline."""

    def status(self, status: PipelineStatus) -> None:
        """The present status."""

    def rows(self, query: str, batch_id: int, rows: list[Mapping[str, Any]]) -> None:
        """Rows of a console sink; called from a Spark thread."""


class _Query:
    """One sink's query, with its supervisor."""

    def __init__(self, sink: Sink, frame: "DataFrame", checkpoint: str, most_restarts: int | None) -> None:
        self.sink = sink
        self.frame = frame
        self._checkpoint = checkpoint
        self.keeper = QuerySupervisor(sink.name.value, most_restarts)
        self.running: StreamingQuery | None = None
        self._figures: BatchFigures | None = None
        self._figures_at_ms: int | None = None
        self._seen = ""

    def status(self) -> QueryStatus:
        keeper, error = self.keeper, self.keeper.error
        said = None if error is None else error.message
        kind = None if error is None else getattr(errors, error.error, None)
        return QueryStatus(
            keeper.name, keeper.state, keeper.restarts, said, self._figures_at_ms, self._figures,
            None if kind is None else kind.id,
        )  # fmt: skip

    def look(self, now_ms: int) -> None:
        """Check its progress and its end."""
        if self.running is None or self.keeper.state != "running":
            return
        active = self.running.isActive
        progress = self.running.lastProgress
        if progress is not None and progress.json != self._seen:
            self._seen = progress.json
            self._figures, self._figures_at_ms = figures_of(json.loads(progress.json)), now_ms
            self.keeper.progressed()
        elif active and self.keeper.error is not None and self.running.status["message"].startswith(_WAITING):
            self.keeper.progressed()  # a query without new records reports no progress
        if active:
            return
        error = self.running.exception()
        if error is None:
            self.keeper.finished()
        else:
            self.failed(now_ms, error)
        self.running = None

    def failed(self, now_ms: int, error: Exception) -> None:
        """The query failed."""
        name, message = reason(str(error), self._checkpoint)
        self.keeper.failed(now_ms, QueryEnd(name, message, is_permanent(name or type(error).__name__, str(error))))

    def stop(self) -> None:
        """Stop it between micro-batches or inside one, which is then not committed."""
        if self.running is not None:
            self.running.stop()
            self.running = None
        self.keeper.stopped()


class Application:
    """Runs a pipeline with prepared frames."""

    def __init__(
        self,
        pipeline: PipelineModel,
        frames: Mapping[str, "DataFrame"],
        checkpoints: Checkpoints,
        terms: Terms,
        watcher: PipelineWatcher,
    ) -> None:
        """`checkpoints` are held by the caller."""
        most = terms.restarts if terms.restarts is not None or not terms.once else _TRIES_ONCE
        self._pipeline = pipeline
        self._checkpoints = checkpoints
        self._terms = terms
        self._watcher = watcher
        self._queries = [
            _Query(sink, frames[sink.input.value.lower()], str(checkpoints.of(sink.name.value).directory), most)
            for sink in pipeline.sinks
        ]
        self._started_at_ms = _now_ms()

    def run(self, wait: Callable[[float], bool]) -> None:
        """Run until all queries have ended, or `wait` returns true, after that many seconds or earlier, to stop.

        Raises PipelineFailed if a query failed permanently, or Spark has ended.
        """
        from py4j.protocol import Py4JError

        try:
            while not all(query.keeper.is_over for query in self._queries):
                for query in self._queries:
                    self._step(query)
                self._tell("running")
                if wait(_LOOK_MS / 1000):
                    break
            self._stop()
        except (Py4JError, ConnectionError) as error:
            if wait(0):  # a signal to this process may have reached its Java as well, as with systemd
                for query in self._queries:
                    query.keeper.stopped()
                self._tell("stopped")
                return
            self._tell("failed")
            raise PipelineFailed(
                f"Spark's Java is gone; {self._checkpoints.directory / 'spark.log'} has what it said: {error}"
            ) from None
        self._end()

    def _step(self, query: _Query) -> None:
        query.look(_now_ms())
        due_ms = query.keeper.due_ms()
        if due_ms is not None and due_ms <= _now_ms():
            self._start(query)

    def _start(self, query: _Query) -> None:
        from pyspark.errors import PySparkException

        name = query.sink.name.value
        streams = (source.location.value for source in streams_of(self._pipeline, query.sink.input.value))
        try:
            checkpoint = self._checkpoints.claim(name, streams)
            query.frame.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            query.running = start(
                self._pipeline, query.sink, query.frame, checkpoint, self._watcher.rows, once=self._terms.once
            )
        except DuramenError as error:
            name = type(error).__name__
            query.keeper.failed(_now_ms(), QueryEnd(name, str(error), is_permanent(name, "")))
        except (PySparkException, OSError) as error:
            query.failed(_now_ms(), error)
        else:
            query.keeper.started(_now_ms())

    def _stop(self) -> None:
        for query in self._queries:
            query.look(_now_ms())
            query.stop()

    def _end(self) -> None:
        failed = [query.keeper for query in self._queries if query.keeper.state == "failed"]
        done = all(query.keeper.state == "finished" for query in self._queries)
        self._tell("failed" if failed else "finished" if done else "stopped")
        if failed:
            said = failed[0].error.message if failed[0].error is not None else ""
            more = f" (and {len(failed) - 1} more queries)" if len(failed) > 1 else ""
            raise PipelineFailed(f"query {failed[0].name}{more}: {said}")

    def _tell(self, state: str) -> None:
        status = PipelineStatus(
            self._pipeline.name.value, state, self._terms.master, self._started_at_ms, _now_ms(),
            [query.status() for query in self._queries],
        )  # fmt: skip
        # On a full disk the display still works.
        with contextlib.suppress(OSError):
            write_status(self._checkpoints, status)
        self._watcher.status(status)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
